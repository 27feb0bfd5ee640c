/* Handlers of forks: the library's own state does not carry over to a child, which starts empty. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* Call `forget` in each child of a fork. Only the first call for a `watched` registers it. */
static inline void vgpu_reset_in_children(bool *watched, void (*forget)(void)) {
  if (__atomic_load_n(watched, __ATOMIC_RELAXED)) return;
  if (!__atomic_exchange_n(watched, true, __ATOMIC_ACQ_REL)) pthread_atfork(NULL, NULL, forget);
}

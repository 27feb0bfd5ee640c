/* What a process keeps of its own memory is not its child's: a fork begins with nothing. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

/* Let every child forget. The first call for each `watched` counts; the others cost a load. */
static inline void vgpu_reset_in_children(bool *watched, void (*forget)(void)) {
  if (__atomic_load_n(watched, __ATOMIC_RELAXED)) return;
  if (!__atomic_exchange_n(watched, true, __ATOMIC_ACQ_REL)) pthread_atfork(NULL, NULL, forget);
}

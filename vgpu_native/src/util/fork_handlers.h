/* Handlers of forks: the library's own state does not carry over to a child, which starts empty. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What glibc's pthread_atfork calls. It is weak, because musl has none: a program of musl never gets to
 * the driver, but it may be started with this library. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *object)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Call `forget` in each child of a fork. Returns whether it is registered. */
static inline bool vgpu_call_in_children(void (*forget)(void)) {
  return __register_atfork && !__register_atfork(NULL, NULL, forget, __dso_handle);
}

/* The same; only the first call for a `watched` registers it. */
static inline void vgpu_reset_in_children(bool *watched, void (*forget)(void)) {
  if (__atomic_load_n(watched, __ATOMIC_RELAXED)) return;
  if (!__atomic_exchange_n(watched, true, __ATOMIC_ACQ_REL)) vgpu_call_in_children(forget);
}

/* Another preloaded library that replaces dlsym. It cannot find the next dlsym by dlsym, so it finds it as
 * such libraries do: by a version of it behind itself, or by the handle of the C library. */
#include <dlfcn.h>
#include <stddef.h>

#ifndef NEXT_VERSION
#ifdef __aarch64__
#define NEXT_VERSION "GLIBC_2.17"
#else
#define NEXT_VERSION "GLIBC_2.2.5"
#endif
#endif

#ifdef BY_HANDLE
#define WHERE dlopen("libc.so.6", RTLD_LAZY)
#else
#define WHERE RTLD_NEXT
#endif

void *next_dlsym(void) { return dlvsym(WHERE, "dlsym", NEXT_VERSION); }

void *dlsym(void *restrict handle, const char *restrict name) {
  static void *(*next)(void *, const char *);
  if (!next) next = (void *(*)(void *, const char *))next_dlsym();
  return next(handle, name);
}

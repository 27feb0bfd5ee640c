/* Another preloaded library that replaces dlsym. It cannot find the next dlsym by dlsym, so it names the
 * version of the first C library, as such libraries do. */
#include <dlfcn.h>
#include <stddef.h>

#ifdef __aarch64__
#define FIRST "GLIBC_2.17"
#else
#define FIRST "GLIBC_2.2.5"
#endif

void *dlsym(void *restrict handle, const char *restrict name) {
  static void *(*next)(void *, const char *);
  if (!next) next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST);
  return next(handle, name);
}

#include "intercept/real_dlsym.h"

#include <dlfcn.h>
#include <stddef.h>

/* The versions of dlsym: the first of each architecture, and 2.34, which moved it. */
#if defined(__x86_64__)
static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#else
static const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif

/* The assembly jumps to this address. */
dlsym_function *vgpu_real_dlsym_address __attribute__((visibility("hidden")));

static void *no_dlsym(void *handle, const char *name) { return NULL; }

dlsym_function *vgpu_real_dlsym(void) {
  dlsym_function *found = __atomic_load_n(&vgpu_real_dlsym_address, __ATOMIC_ACQUIRE);
  if (found) return found;
  for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
    found = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  if (!found) found = no_dlsym;
  __atomic_store_n(&vgpu_real_dlsym_address, found, __ATOMIC_RELEASE);
  return found;
}

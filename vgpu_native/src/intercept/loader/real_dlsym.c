#include "intercept/loader/real_dlsym.h"

#include <dlfcn.h>
#include <stddef.h>

#include "intercept/loader/c_library.h"

/* The versions of dlsym and dlvsym: the first of each architecture, and 2.34, which moved them. */
#if defined(__x86_64__)
static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#else
static const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif

/* The assembly jumps to these addresses. */
dlsym_function *vgpu_real_dlsym_address __attribute__((visibility("hidden")));
dlvsym_function *vgpu_real_dlvsym_address __attribute__((visibility("hidden")));

static void *no_dlsym(void *handle, const char *name) { return NULL; }
static void *no_dlvsym(void *handle, const char *name, const char *version) { return NULL; }

/* The function of this name behind this library; NULL if the C library has no versions. */
static void *next(dlvsym_function *look_up, const char *name) {
  void *found = NULL;
  for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
    found = look_up(RTLD_NEXT, name, versions[i]);
  return found;
}

dlvsym_function *vgpu_real_dlvsym(void) {
  dlvsym_function *found = __atomic_load_n(&vgpu_real_dlvsym_address, __ATOMIC_ACQUIRE);
  if (found) return found;
  found = (dlvsym_function *)vgpu_c_library_function("dlvsym");
  if (found) found = (dlvsym_function *)next(found, "dlvsym");
  if (!found) found = no_dlvsym;
  __atomic_store_n(&vgpu_real_dlvsym_address, found, __ATOMIC_RELEASE);
  return found;
}

dlsym_function *vgpu_real_dlsym(void) {
  dlsym_function *found = __atomic_load_n(&vgpu_real_dlsym_address, __ATOMIC_ACQUIRE);
  if (found) return found;
  found = (dlsym_function *)next(vgpu_real_dlvsym(), "dlsym");
  if (!found) found = (dlsym_function *)vgpu_c_library_function("dlsym");
  if (!found) found = no_dlsym;
  __atomic_store_n(&vgpu_real_dlsym_address, found, __ATOMIC_RELEASE);
  return found;
}

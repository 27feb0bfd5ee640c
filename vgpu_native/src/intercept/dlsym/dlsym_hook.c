/* What dlsym answers. Names that are not hooked, and those that some library has that is not the
 * driver, are the real dlsym's affair: it is jumped to, so that it sees the application as caller,
 * from whose place RTLD_NEXT counts, and sets dlerror.
 *
 * This runs inside every dlsym of the process, in constructors and allocators: until a name is
 * one of the table's it takes no memory and no lock. */
#include "intercept/driver_functions.h"

#include <dlfcn.h>

/* dlsym has been in the C library since its first version on each architecture; 2.34 moved it. */
#if defined(__x86_64__)
static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#else
static const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif

/* Read by the assembly, which jumps to it. */
dlsym_function *vgpu_dlsym_found __attribute__((visibility("hidden")));

static void *no_dlsym(void *handle, const char *name) { return NULL; }

dlsym_function *vgpu_dlsym(void) {
  dlsym_function *found = __atomic_load_n(&vgpu_dlsym_found, __ATOMIC_ACQUIRE);
  if (found) return found;
  for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
    found = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  if (!found) found = no_dlsym;
  __atomic_store_n(&vgpu_dlsym_found, found, __ATOMIC_RELEASE);
  return found;
}

/* Returned in two registers. Not decided: the real dlsym is to be asked. */
struct choice {
  void *address;
  size_t decided;
};

static const struct choice ask = {NULL, 0};

static bool capital(char letter) { return letter >= 'A' && letter <= 'Z'; }

/* cu and nvml with a capital: not cudaMalloc, cublasCreate or curl_easy_init. */
static bool like_driver(const char *name) {
  if (name[0] == 'c') return name[1] == 'u' && capital(name[2]);
  return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l' && capital(name[4]);
}

/* Without a driver the process must not find this library's functions instead of none. */
static struct choice without_driver(const char *name) {
  return (struct choice){vgpu_dlsym()(RTLD_NEXT, name), 1};
}

struct choice vgpu_pick(void *handle, const char *name) __attribute__((visibility("hidden")));

struct choice vgpu_pick(void *handle, const char *name) {
  dlsym_function *real = vgpu_dlsym();
  const struct vgpu_hook *hook = like_driver(name) ? vgpu_hook_named(name) : NULL;
  if (!hook) return ask;
  bool driver = vgpu_library(hook->function) && vgpu_has(hook->function);
  if (handle == RTLD_NEXT) return driver ? (struct choice){hook->address, 1} : ask;
  void *found = real(handle, name);
  if (found == hook->address) return driver ? (struct choice){found, 1} : without_driver(name);
  if (driver && found == vgpu_real(hook->function)) return (struct choice){hook->address, 1};
  return ask;
}

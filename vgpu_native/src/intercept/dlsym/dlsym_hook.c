/* What dlsym answers. Names that are not hooked, and those that some library has that is not the
 * driver, are the real dlsym's affair: it is jumped to, so that it sees the application as caller,
 * from whose place RTLD_NEXT counts, and sets dlerror.
 *
 * This runs inside every dlsym of the process, in constructors and allocators: until a name is
 * one of the table's it takes no memory and no lock. */
#include <dlfcn.h>

#include "intercept/driver_functions.h"
#include "intercept/hook_table.h"
#include "intercept/real_dlsym.h"

/* Returned in two registers. Not decided: the real dlsym is to be asked. */
struct choice {
  void *address;
  size_t decided;
};

static const struct choice ask = {NULL, 0};

static bool capital(char letter) { return letter >= 'A' && letter <= 'Z'; }

/* cu and nvml with a capital: not cudaMalloc, cublasCreate or curl_easy_init. */
static bool has_driver_prefix(const char *name) {
  if (name[0] == 'c') return name[1] == 'u' && capital(name[2]);
  return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l' && capital(name[4]);
}

/* Without a driver the process must not find this library's functions instead of none. */
static struct choice without_driver(const char *name) {
  return (struct choice){vgpu_real_dlsym()(RTLD_NEXT, name), 1};
}

struct choice vgpu_choose_symbol(void *handle, const char *name) __attribute__((visibility("hidden")));

struct choice vgpu_choose_symbol(void *handle, const char *name) {
  dlsym_function *real = vgpu_real_dlsym();
  const struct vgpu_hook *hook = has_driver_prefix(name) ? vgpu_hook_named(name) : NULL;
  if (!hook) return ask;
  bool driver = vgpu_driver_library(hook->function) && vgpu_has(hook->function);
  if (handle == RTLD_NEXT) return driver ? (struct choice){hook->address, 1} : ask;
  void *found = real(handle, name);
  if (found == hook->address) return driver ? (struct choice){found, 1} : without_driver(name);
  if (driver && found == vgpu_real(hook->function)) return (struct choice){hook->address, 1};
  return ask;
}

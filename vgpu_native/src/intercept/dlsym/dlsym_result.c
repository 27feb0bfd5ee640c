/* The result of dlsym. For names without a hook, and names that another library defines, the
 * assembly jumps to the real dlsym. So the real dlsym sees the program as its caller, on which RTLD_NEXT
 * depends, and sets dlerror.
 *
 * This runs inside every dlsym of the process, in constructors and allocators. It takes no memory and
 * no lock unless the name is in the table. */
#include <dlfcn.h>

#include "intercept/driver_functions.h"
#include "intercept/hook_table.h"
#include "intercept/real_dlsym.h"

/* Returned in two registers. Not decided: call the real dlsym. */
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

/* Without a driver the process must find no function, and not this library's. */
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

/* The result of dlsym and dlvsym. For names without a hook, and names that another library defines, the
 * assembly jumps to the real function. So the real one sees the program as its caller, on which RTLD_NEXT
 * depends, and sets dlerror.
 *
 * This runs inside every dlsym of the process, in constructors and allocators. It takes no memory and
 * no lock unless the name is in the table, or is one of these two functions. */
#include <dlfcn.h>

#include "intercept/loader/c_library.h"
#include "intercept/driver_functions.h"
#include "intercept/hook_table.h"
#include "intercept/loader/real_dlsym.h"
#include "intercept/unknown_functions.h"

/* Returned in two registers. Not decided: call the real function. */
struct choice {
  void *address;
  size_t decided;
};

static const struct choice ask = {NULL, 0};

static struct choice is(void *address) { return (struct choice){address, 1}; }

/* A symbol that a program looks up; `version` is NULL for dlsym. */
struct wanted {
  void *handle;
  const char *name, *version;
};

static void *look_up(void *handle, const struct wanted *wanted) {
  return wanted->version ? vgpu_real_dlvsym()(handle, wanted->name, wanted->version)
                         : vgpu_real_dlsym()(handle, wanted->name);
}

static bool capital(char letter) { return letter >= 'A' && letter <= 'Z'; }

/* cu and nvml with a capital: not cudaMalloc, cublasCreate or curl_easy_init. */
static bool has_driver_prefix(const char *name) {
  if (name[0] == 'c') return name[1] == 'u' && capital(name[2]);
  return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l' && capital(name[4]);
}

/* Without a driver the process must find no function, and not this library's. */
static struct choice without_driver(const struct wanted *wanted) { return is(look_up(RTLD_NEXT, wanted)); }

static struct choice choose_driver_function(const struct wanted *wanted, const struct vgpu_hook *hook) {
  void *library = vgpu_driver_library(hook->function);
  bool driver = library && vgpu_has(hook->function);
  bool next = wanted->handle == RTLD_NEXT;
  if (next && !driver) return ask;
  void *found = look_up(next ? library : wanted->handle, wanted);
  if (driver && found == vgpu_real(hook->function)) return is(hook->address);
  if (next || found != hook->address) return ask;
  return driver ? is(found) : without_driver(wanted);
}

/* A program that looks dlsym or dlvsym up would find the C library's by a handle, or from behind this
 * library, and by it the driver's functions without hooks. If another library behind this one replaces the
 * function, each finds the next as before, so that none calls itself. */
static struct choice choose_look_up(const struct wanted *wanted, void *own, void *real, const void *caller) {
  if (real != vgpu_c_library_function(wanted->name)) return ask;
  bool next = wanted->handle == RTLD_NEXT;
  if (next && !vgpu_is_behind(caller)) return ask;
  return look_up(wanted->handle, wanted) == real ? is(own) : ask;
}

/* A function of the driver without a hook is known, of a newer driver, or none. */
static void log_if_unknown(const char *name) {
  void *library = name[0] == 'c' && !vgpu_is_named(name) ? vgpu_driver_library(VGPU_FN_cuInit) : NULL;
  if (library && vgpu_real_dlsym()(library, name)) vgpu_log_unknown_function(name, 0);
}

static struct choice choose_by_name(const struct wanted *wanted) {
  const struct vgpu_hook *hook = vgpu_hook_named(wanted->name);
  if (hook) return choose_driver_function(wanted, hook);
  log_if_unknown(wanted->name);
  return ask;
}

struct choice vgpu_choose_symbol(void *handle, const char *name, const char *version, const void *caller)
    __attribute__((visibility("hidden")));

struct choice vgpu_choose_symbol(void *handle, const char *name, const char *version, const void *caller) {
  struct wanted wanted = {handle, name, version};
  void *real_dlsym = (void *)vgpu_real_dlsym(), *real_dlvsym = (void *)vgpu_real_dlvsym();
  if (vgpu_same_text(name, "dlsym")) return choose_look_up(&wanted, (void *)dlsym, real_dlsym, caller);
  if (vgpu_same_text(name, "dlvsym")) return choose_look_up(&wanted, (void *)dlvsym, real_dlvsym, caller);
  return has_driver_prefix(name) ? choose_by_name(&wanted) : ask;
}

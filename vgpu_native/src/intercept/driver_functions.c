/* The driver's own functions. They are looked up by the handle of the driver's library, so that functions
 * of other libraries with these names are not found. */
#include "intercept/driver_functions.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "intercept/loader/real_dlsym.h"

void *vgpu_reals[VGPU_FN_COUNT];

/* Not an array of pointers, because the loader would relocate each of them in every process. */
static const struct names {
#define VGPU_FUNCTION(name, base, version, flag) char name[sizeof #name];
  VGPU_FUNCTIONS
#undef VGPU_FUNCTION
} names = {
#define VGPU_FUNCTION(name, base, version, flag) #name,
    VGPU_FUNCTIONS
#undef VGPU_FUNCTION
};

static const uint16_t offsets[] = {
#define VGPU_FUNCTION(name, base, version, flag) offsetof(struct names, name),
    VGPU_FUNCTIONS
#undef VGPU_FUNCTION
};

static const char *name_of(enum vgpu_function function) { return (const char *)&names + offsets[function]; }

bool vgpu_is_named(const char *name) {
  for (int function = 0; function < VGPU_FN_COUNT; function++)
    if (!strcmp(name_of(function), name)) return true;
  return false;
}

/* A driver may be older than the program. These stand for the functions that it lacks. 13 is
 * NVML_ERROR_FUNCTION_NOT_FOUND. */
static int missing_cuda(void) { return CUDA_ERROR_NOT_SUPPORTED; }
static int missing_nvml(void) { return 13; }

static bool is_nvml(enum vgpu_function function) { return name_of(function)[0] == 'n'; }

/* A handle is kept: the driver is never unloaded, and its addresses stay valid. */
void *vgpu_driver_library(enum vgpu_function function) {
  static void *handles[2];
  bool nvml = is_nvml(function);
  void *handle = __atomic_load_n(&handles[nvml], __ATOMIC_ACQUIRE);
  if (handle) return handle;
  int error = errno;
  handle = dlopen(nvml ? "libnvidia-ml.so.1" : "libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle) __atomic_store_n(&handles[nvml], handle, __ATOMIC_RELEASE);
  errno = error;
  return handle;
}

/* A missing function is remembered, too, but only once the library is loaded. */
void *vgpu_find_real(enum vgpu_function function) {
  void *missing = is_nvml(function) ? (void *)missing_nvml : (void *)missing_cuda;
  void *library = vgpu_driver_library(function);
  if (!library) return missing;
  int error = errno;
  void *real = vgpu_real_dlsym()(library, name_of(function));
  errno = error;
  if (!real) real = missing;
  __atomic_store_n(&vgpu_reals[function], real, __ATOMIC_RELEASE);
  return real;
}

bool vgpu_has(enum vgpu_function function) {
  void *real = vgpu_real(function);
  return real != (void *)missing_cuda && real != (void *)missing_nvml;
}

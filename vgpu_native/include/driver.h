/* The driver's API with all versions of its functions, and the way to the real ones. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "functions.inc"

/* Numbers of all functions of CUDA, and of those of NVML that functions.toml names. */
enum vgpu_function {
#define VGPU_FUNCTION(name, base, version, flag) VGPU_FN_##name,
  VGPU_FUNCTIONS
#undef VGPU_FUNCTION
      VGPU_FN_COUNT
};

/* The driver's own functions that were looked up so far; read them with vgpu_real. */
extern void *vgpu_reals[VGPU_FN_COUNT];
void *vgpu_find_real(enum vgpu_function function);
bool vgpu_has(enum vgpu_function function);

/* The driver's own function. If the driver has none: a function that only returns an error, so that
 * the result can always be called. */
static inline void *vgpu_real(enum vgpu_function function) {
  void *real = __atomic_load_n(&vgpu_reals[function], __ATOMIC_ACQUIRE);
  return __builtin_expect(real != NULL, 1) ? real : vgpu_find_real(function);
}

/* Call the driver's function: REAL(cuMemAlloc_v2)(pointer, bytes). NVML's need <nvml.h>, too. */
#define REAL(name) ((__typeof__(&name))vgpu_real(VGPU_FN_##name))

/* Whether the driver has the function. */
#define HAS(name) vgpu_has(VGPU_FN_##name)

/* A hook: a function with the driver's name that replaces it. The build finds it by this mark, because all
 * other symbols stay inside the library. */
#define EXPORT __attribute__((visibility("default")))

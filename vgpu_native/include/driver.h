/* The driver's API with all versions of its functions, and the way to the real ones. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdbool.h>

/* A symbol that replaces the driver's. Everything else stays inside the library. */
#define EXPORT __attribute__((visibility("default")))

/* Numbers of the functions that are hooked or called, VGPU_FN_cuMemAlloc_v2 and so on. */
enum vgpu_function {
#define VGPU_FUNCTION(name) VGPU_FN_##name,
#include "functions.inc"
#undef VGPU_FUNCTION
  VGPU_FUNCTIONS
};

/* The driver's own function, NULL where the driver has none; found at the first call. */
void *vgpu_real(enum vgpu_function function);

/* Call the driver's function: REAL(cuMemAlloc_v2)(pointer, bytes). */
#define REAL(name) ((__typeof__(&name))vgpu_real(VGPU_FN_##name))

/* Whether the driver has it. */
#define HAS(name) (vgpu_real(VGPU_FN_##name) != NULL)

/* How deep this thread is inside hooks. The driver calls itself, and must not be charged twice:
 *
 *   if (!vgpu_enter()) return REAL(f)(...);     nested, or control is off
 *   ...
 *   vgpu_leave();
 */
bool vgpu_enter(void);
void vgpu_leave(void);

/* The entry of a device (see vgpu.h) by its ordinal, and of the current context's device; -1: none. */
int vgpu_entry_of(CUdevice device);
int vgpu_entry_now(void);

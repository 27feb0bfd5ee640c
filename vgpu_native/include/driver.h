/* The driver's API with all versions of its functions, and the way to the real ones.
 *
 * A hook is a function with the driver's name, marked EXPORT; the build finds it. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#include "functions.inc"
#include "vgpu.h"

/* A symbol that replaces the driver's. Everything else stays inside the library. */
#define EXPORT __attribute__((visibility("default")))

/* Numbers of all functions of CUDA, and of those of NVML that functions.toml names. */
enum vgpu_function {
#define VGPU_FUNCTION(name, base, version, flag) VGPU_FN_##name,
  VGPU_FUNCTIONS
#undef VGPU_FUNCTION
      VGPU_FN_COUNT
};

/* The driver's own functions as far as they were looked for; read them with vgpu_real. */
extern void *vgpu_reals[VGPU_FN_COUNT];
void *vgpu_find(enum vgpu_function function);
bool vgpu_has(enum vgpu_function function);

/* The driver's own function. Where the driver has none: one that only returns an error, so that
 * whatever this is may be called. */
static inline void *vgpu_real(enum vgpu_function function) {
  void *real = __atomic_load_n(&vgpu_reals[function], __ATOMIC_ACQUIRE);
  return __builtin_expect(real != NULL, 1) ? real : vgpu_find(function);
}

/* Call the driver's function: REAL(cuMemAlloc_v2)(pointer, bytes). NVML's need <nvml.h>, too. */
#define REAL(name) ((__typeof__(&name))vgpu_real(VGPU_FN_##name))

/* Whether the driver has it. */
#define HAS(name) vgpu_has(VGPU_FN_##name)

/* Whether this thread is inside a hook. The driver calls itself, and must not be charged twice:
 *
 *   if (!vgpu_enter()) return REAL(f)(...);     nested, or control is off
 *   ...
 *   vgpu_leave();
 */
extern __thread bool vgpu_inside __attribute__((tls_model("initial-exec")));

static inline bool vgpu_enter(void) {
  if (vgpu_inside || !vgpu_ready()) return false;
  vgpu_inside = true;
  return true;
}

static inline void vgpu_leave(void) { vgpu_inside = false; }

/* The entry of a device (see vgpu.h) by its ordinal, and of the current context's device; -1: none. */
int vgpu_entry_of(CUdevice device);
int vgpu_entry_now(void);

/* Whether this process sees one device only. */
bool vgpu_one_device(void);

/* The same without asking the driver each time. To `ask` once in a while sets right what is not seen:
 * a context that is created becomes the current one, too. */
int vgpu_entry_recent(bool ask);

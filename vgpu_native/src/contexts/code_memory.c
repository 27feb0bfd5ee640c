/* Modules and libraries are charged when they are loaded, by the memory that this process has more after it. A load
 * that cannot be measured is not charged. The driver loads code lazily, unless CUDA_MODULE_LOADING is EAGER: that part
 * arrives at the first launch. The agent counts both, some seconds late. */
#include "contexts/code_memory.h"

#include "contexts/context_charge.h"
#include "contexts/own_growth.h"
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"

static struct vgpu_map modules; /* by module or library, which are different addresses */

static struct vgpu_growth begin_load(void) {
  struct vgpu_growth growth;
  int entry = vgpu_current_context()->entry;
  vgpu_growth_begin(&growth, vgpu_contexts_charged(entry) ? entry : -1);
  return growth;
}

/* False: the code does not fit, and the caller unloads it. */
static bool end_load(struct vgpu_growth *growth, CUresult result, const void *code) {
  struct vgpu_charge charge;
  int64_t grown;
  int entry = growth->entry;
  if (!vgpu_growth_end(growth, &grown) || result != CUDA_SUCCESS || grown <= 0) return true;
  if (!vgpu_charge_current(&charge, vgpu_beyond_promise(entry, (uint64_t)grown))) return false;
  return vgpu_charge_store(&modules, &charge, (uintptr_t)code);
}

void vgpu_code_ends(CUcontext context) { vgpu_charges_end(&modules, context); }

#define LOAD(name, unload, parameters, arguments)            \
  EXPORT CUresult CUDAAPI name parameters {                        \
    if (!vgpu_enter()) return REAL(name) arguments;                \
    struct vgpu_growth growth = begin_load();                      \
    CUresult result = REAL(name) arguments;                        \
    if (!end_load(&growth, result, result ? NULL : *code)) {       \
      REAL(unload)(*code);                                         \
      result = CUDA_ERROR_OUT_OF_MEMORY;                           \
    }                                                              \
    vgpu_leave();                                                  \
    return result;                                                 \
  }

LOAD(cuModuleLoad, cuModuleUnload, (CUmodule *code, const char *name), (code, name))
LOAD(cuModuleLoadData, cuModuleUnload, (CUmodule *code, const void *image), (code, image))
LOAD(cuModuleLoadFatBinary, cuModuleUnload, (CUmodule *code, const void *image), (code, image))
LOAD(cuModuleLoadDataEx, cuModuleUnload,
     (CUmodule *code, const void *image, unsigned count, CUjit_option *options, void **values),
     (code, image, count, options, values))
LOAD(cuLibraryLoadData, cuLibraryUnload,
     (CUlibrary *code, const void *image, CUjit_option *jit, void **jit_values, unsigned jit_count,
      CUlibraryOption *options, void **values, unsigned count),
     (code, image, jit, jit_values, jit_count, options, values, count))
LOAD(cuLibraryLoadFromFile, cuLibraryUnload,
     (CUlibrary *code, const char *name, CUjit_option *jit, void **jit_values, unsigned jit_count,
      CUlibraryOption *options, void **values, unsigned count),
     (code, name, jit, jit_values, jit_count, options, values, count))

#define UNLOAD(name, type)                                                      \
  EXPORT CUresult CUDAAPI name(type code) {                                     \
    if (!vgpu_enter()) return REAL(name)(code);                                 \
    struct vgpu_item item;                                                      \
    bool known = vgpu_map_take(&modules, (uintptr_t)code, &item);               \
    CUresult result = REAL(name)(code);                                         \
    if (known) vgpu_charge_freed(&modules, &item, result);                      \
    vgpu_leave();                                                               \
    return result;                                                              \
  }

UNLOAD(cuModuleUnload, CUmodule)
UNLOAD(cuLibraryUnload, CUlibrary)

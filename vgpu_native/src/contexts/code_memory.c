/* Modules and libraries are charged when they are loaded, by what the card has less after it. The driver loads code
 * lazily, unless CUDA_MODULE_LOADING is EAGER: that part arrives at the first launch, and the agent counts it. */
#include "contexts/code_memory.h"

#include "contexts/context_charge.h"
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"

#define CODE_MAX (1ULL << 30) /* a larger growth is another container's */

static struct vgpu_map modules; /* by module or library, which are different addresses */

/* Around a load. */
struct loading {
  int entry; /* -1: it is not charged */
  bool known;
  uint64_t before;
};

static struct loading begin_load(void) {
  struct loading loading = {.entry = vgpu_current_context()->entry};
  if (!vgpu_contexts_charged(loading.entry)) loading.entry = -1;
  if (loading.entry >= 0) loading.known = vgpu_used_now(&loading.before);
  return loading;
}

/* False: the code does not fit, and the caller unloads it. */
static bool end_load(const struct loading *loading, CUresult result, const void *code) {
  uint64_t after = 0;
  struct vgpu_charge charge;
  if (result != CUDA_SUCCESS || loading->entry < 0 || !loading->known || !vgpu_used_now(&after)) return true;
  uint64_t grown = after > loading->before ? after - loading->before : 0;
  if (grown > CODE_MAX) return true;
  grown = vgpu_beyond_promise(loading->entry, grown);
  if (!vgpu_charge_current(&charge, grown)) return false;
  return vgpu_charge_store(&modules, &charge, (uintptr_t)code);
}

void vgpu_code_ends(CUcontext context) { vgpu_charges_end(&modules, context); }

#define LOAD(name, unload, parameters, arguments)            \
  EXPORT CUresult CUDAAPI name parameters {                        \
    if (!vgpu_enter()) return REAL(name) arguments;                \
    struct loading loading = begin_load();                         \
    CUresult result = REAL(name) arguments;                        \
    if (!end_load(&loading, result, result ? NULL : *code)) {      \
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

/* Modules, libraries and functions: names without code, which take memory if a test sets that. */
#include "cuda_stub.h"

#include <stdlib.h>

struct CUmod_st {
  int device;
  uint64_t bytes;
  CUdeviceptr global;
  _Atomic bool loaded;
  CUcontext context; /* with which its memory ends */
  struct CUmod_st *next;
};

static uint64_t load_ns;

__attribute__((constructor)) static void read_environment(void)
{
  load_ns = stub_setting("VGPU_STUB_LOAD_NS", 0);
}

/* With lazy loading the code of a function is loaded by its first launch, which takes time of the host. */
void stub_function_load(CUfunction function)
{
  if (load_ns && !atomic_exchange(&((CUmodule)function)->loaded, true)) stub_wait_until(stub_now() + load_ns);
}

CUresult stub_cuFuncLoad(CUfunction function)
{
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  stub_function_load(function);
  return CUDA_SUCCESS;
}

CUresult stub_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
  if (!state || !function) return CUDA_ERROR_INVALID_VALUE;
  bool loaded = !load_ns || ((CUmodule)function)->loaded;
  *state = loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

static CUmodule modules;

/* Its handle stays valid for an unload. Objects are locked. */
void stub_modules_end(CUcontext context)
{
  for (CUmodule each = modules; each; each = each->next) {
    if (each->context != context) continue;
    stub_give(each->device, each->bytes);
    each->bytes = 0;
    each->context = NULL;
  }
}

void stub_forget_modules(void)
{
  modules = NULL;
}

static CUresult load(CUmodule *module)
{
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  int device = stub_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t bytes = stub_setting("VGPU_STUB_MODULE_BYTES", 0);
  if (!stub_take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *module = calloc(1, sizeof **module);
  (*module)->device = device;
  (*module)->bytes = bytes;
  stub_lock_objects();
  (*module)->context = stub_context();
  (*module)->next = modules;
  modules = *module;
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

CUresult stub_cuModuleLoad(CUmodule *module, const char *name) { return (void)name, load(module); }
CUresult stub_cuModuleLoadData(CUmodule *module, const void *image) { return (void)image, load(module); }
CUresult stub_cuModuleLoadFatBinary(CUmodule *module, const void *image) { return (void)image, load(module); }

CUresult stub_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                 CUjit_option *options, void **values)
{
  (void)image, (void)count, (void)options, (void)values;
  return load(module);
}

CUresult stub_cuModuleUnload(CUmodule module)
{
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  stub_lock_objects();
  CUmodule *link = &modules;
  while (*link && *link != module) link = &(*link)->next;
  bool known = *link;
  if (known) *link = module->next;
  if (known) stub_give(module->device, module->bytes);
  stub_unlock_objects();
  if (!known) return CUDA_ERROR_INVALID_HANDLE;
  free(module);
  return CUDA_SUCCESS;
}

/* All functions are one, because a launch reads only the grid. */
CUresult stub_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
  if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
  *function = (CUfunction)module;
  return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stub_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                                unsigned count, CUlibraryOption *library_options, void **library_values,
                                unsigned library_count)
{
  (void)code, (void)options, (void)values, (void)count;
  (void)library_options, (void)library_values, (void)library_count;
  return load((CUmodule *)library);
}

CUresult stub_cuLibraryLoadFromFile(CUlibrary *library, const char *name, CUjit_option *options, void **values,
                                    unsigned count, CUlibraryOption *library_options, void **library_values,
                                    unsigned library_count)
{
  return stub_cuLibraryLoadData(library, name, options, values, count, library_options, library_values,
                                library_count);
}

CUresult stub_cuLibraryUnload(CUlibrary library) { return stub_cuModuleUnload((CUmodule)library); }

CUresult stub_cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
  *module = (CUmodule)library;
  return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stub_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
  (void)name;
  *kernel = (CUkernel)library;
  return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stub_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
  *function = (CUfunction)kernel;
  return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stub_cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function)
{
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stub_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult stub_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int size, size_t shared)
{
  (void)shared;
  if (!blocks || size < 1 || size > 1024) return CUDA_ERROR_INVALID_VALUE;
  *blocks = 2048 / size;
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

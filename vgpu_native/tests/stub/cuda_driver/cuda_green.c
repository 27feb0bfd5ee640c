/* Green contexts: contexts with a part of the processors, which the stub only records. */
#include "cuda_stub.h"

#include <stdlib.h>
#include <string.h>

#define PROCESSORS 132

struct CUdevResourceDesc_st {
  unsigned processors;
};

struct CUgreenCtx_st {
  CUcontext context;
  unsigned processors;
};

CUresult stub_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!resource || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  memset(resource, 0, sizeof *resource);
  resource->type = type;
  resource->sm.smCount = PROCESSORS;
  return CUDA_SUCCESS;
}

CUresult stub_cuDevSmResourceSplitByCount(CUdevResource *parts, unsigned *count, const CUdevResource *whole,
                                          CUdevResource *rest, unsigned flags, unsigned least)
{
  (void)flags;
  unsigned each = (unsigned)round_up(least ? least : 1, 8);
  if (!count || !whole) return CUDA_ERROR_INVALID_VALUE;
  unsigned most = whole->sm.smCount / each, made = !parts || *count > most ? most : *count;
  for (unsigned i = 0; parts && i < made; i++) {
    parts[i] = *whole;
    parts[i].sm.smCount = each;
  }
  if (rest) {
    *rest = *whole;
    rest->sm.smCount = whole->sm.smCount - made * each;
  }
  *count = made;
  return CUDA_SUCCESS;
}

CUresult stub_cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned count)
{
  if (!desc || !resources || !count) return CUDA_ERROR_INVALID_VALUE;
  *desc = calloc(1, sizeof **desc);
  if (!*desc) return CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned i = 0; i < count; i++) (*desc)->processors += resources[i].sm.smCount;
  return CUDA_SUCCESS;
}

CUresult stub_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
  if (!green || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  CUgreenCtx made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = stub_context_make(&made->context, 0, device);
  if (result == CUDA_SUCCESS) made->context->green = true;
  made->processors = desc->processors;
  if (result == CUDA_SUCCESS) *green = made;
  else free(made);
  return result;
}

CUresult stub_cuGreenCtxDestroy(CUgreenCtx green)
{
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = stub_context_end(green->context);
  free(green);
  return result;
}

CUresult stub_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
  if (!context || !green) return CUDA_ERROR_INVALID_VALUE;
  *context = green->context;
  return CUDA_SUCCESS;
}

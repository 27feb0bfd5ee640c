/* The attributes of an address. */
#include "cuda_stub.h"

#include <string.h>

#define GIVE(type, value) (*(type *)data = (type)(value), CUDA_SUCCESS)

static CUresult describe(const struct stub_block *block, CUpointer_attribute which, void *data)
{
  bool managed = block->kind == BLOCK_MANAGED, host = block->kind == BLOCK_HOST;
  switch (which) {
  case CU_POINTER_ATTRIBUTE_CONTEXT: return GIVE(CUcontext, block->context);
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    return GIVE(unsigned, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return GIVE(CUdeviceptr, block->at);
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    return managed || host ? GIVE(uint64_t, block->at) : CUDA_ERROR_INVALID_VALUE;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID: return GIVE(uint64_t, block->id);
  case CU_POINTER_ATTRIBUTE_IS_MANAGED: return GIVE(unsigned, managed);
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return GIVE(int, block->device);
  case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return GIVE(unsigned, block->kind == BLOCK_DEVICE);
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return GIVE(CUdeviceptr, block->at);
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return GIVE(size_t, block->size);
  case CU_POINTER_ATTRIBUTE_MAPPED: return GIVE(unsigned, block->kind != BLOCK_RANGE);
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return GIVE(CUmemoryPool, block->pool);
  default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult stub_cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr at)
{
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_context() && stub_setting("VGPU_STUB_ASK_IN_CONTEXT", 0)) return CUDA_ERROR_INVALID_CONTEXT;
  stub_lock_objects();
  stub_free_in_order();
  struct stub_block *block = stub_block_find(at);
  CUresult result = block ? describe(block, which, data) : CUDA_ERROR_INVALID_VALUE;
  stub_unlock_objects();
  return result;
}

/* For an unknown address, and for an attribute that does not apply, the result is 0 and success. */
CUresult stub_cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr at)
{
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  for (unsigned i = 0; i < count; i++) {
    bool wide = which[i] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE && which[i] != CU_POINTER_ATTRIBUTE_IS_MANAGED &&
                which[i] != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && which[i] != CU_POINTER_ATTRIBUTE_MAPPED &&
                which[i] != CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
    if (!block || describe(block, which[i], data[i]) != CUDA_SUCCESS)
      memset(data[i], which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 0xff : 0, wide ? 8 : 4);
  }
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

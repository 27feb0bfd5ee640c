/* Pools that are made, imported, trimmed and destroyed. */
#include "memory/pools.h"

EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
  if (!vgpu_enter()) return REAL(cuMemPoolCreate)(pool, poolProps);
  CUresult result = REAL(cuMemPoolCreate)(pool, poolProps);
  if (result == CUDA_SUCCESS) {
    bool device = poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    vgpu_pool_made(*pool, device ? vgpu_entry_of(poolProps->location.id) : -1);
  }
  vgpu_leave();
  return result;
}

/* An imported pool hands nothing out; it is charged where it was made. */
EXPORT CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                           CUmemAllocationHandleType handleType,
                                                           unsigned long long flags) {
  if (!vgpu_enter()) {
    return REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
  }
  CUresult result = REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
  if (result == CUDA_SUCCESS) vgpu_pool_made(*pool_out, -1);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  if (!vgpu_enter()) return REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
  CUresult result = REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
  vgpu_pool_settle(vgpu_pool_of(pool));
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  if (!vgpu_enter()) return REAL(cuMemPoolDestroy)(pool);
  struct vgpu_pool *ending = vgpu_pool_ending(pool);
  CUresult result = REAL(cuMemPoolDestroy)(pool);
  vgpu_pool_ended(ending, pool, result);
  vgpu_leave();
  return result;
}

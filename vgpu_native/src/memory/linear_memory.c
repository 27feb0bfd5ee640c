/* Linear memory: cuMemAlloc, managed memory, and the functions that free them.
 *
 * Oversubscription does not change the limit. Where it is allowed, memory within the limit for which the
 * card has no room is allocated as managed memory, which the driver keeps partly in the host. It is
 * charged like all other memory. */
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "memory/granularity/granularity.h"
#include "memory/charges/memory_pools.h"
#include "util/arithmetic.h"

#define ROW 512    /* step of a pitch */
#define PAGE 65536 /* of managed memory, which moves in pages */

/* Store or cancel a charge after the driver's call. `pointer` is read only if it was written. */
static CUresult finish(const struct vgpu_charge *charge, CUresult result, const CUdeviceptr *pointer) {
  if (result != CUDA_SUCCESS) {
    vgpu_charge_cancel(charge);
    return result;
  }
  if (vgpu_charge_store(&vgpu_memory, charge, *pointer)) return result;
  REAL(cuMemFree_v2)(*pointer);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(const struct vgpu_charge *charge, CUdeviceptr *pointer, size_t bytes) {
  unsigned attempt = 0;
  CUresult result;
  do {
    result = REAL(cuMemAlloc_v2)(pointer, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && vgpu_oversubscribes()) {
      return REAL(cuMemAllocManaged)(pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    }
  } while (vgpu_charge_retry(charge, result, &attempt));
  return result;
}

EXPORT CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  if (!vgpu_enter()) return REAL(cuMemAlloc_v2)(dptr, bytesize);
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_linear(&charge, bytesize)) {
    result = finish(&charge, allocate(&charge, dptr, bytesize), dptr);
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize) {
  if (!vgpu_enter()) return REAL(cuMemAlloc)(dptr, bytesize);
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_linear(&charge, bytesize)) {
    result = REAL(cuMemAlloc)(dptr, bytesize);
    CUdeviceptr pointer = result == CUDA_SUCCESS ? *dptr : 0;
    result = finish(&charge, result, &pointer);
  }
  vgpu_leave();
  return result;
}

/* Large managed memory may take whole pages of the card, as other memory does. */
static uint64_t managed_bytes(uint64_t bytes) {
  const struct vgpu_granularity *granularity = vgpu_granularity(VGPU_LINEAR, vgpu_current_context()->entry);
  uint64_t all = vgpu_granular(granularity, bytes);
  return vgpu_rounded(all, PAGE);
}

EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  if (!vgpu_enter()) return REAL(cuMemAllocManaged)(dptr, bytesize, flags);
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_current(&charge, managed_bytes(bytesize))) {
    result = finish(&charge, REAL(cuMemAllocManaged)(dptr, bytesize, flags), dptr);
  }
  vgpu_leave();
  return result;
}

static CUresult finish_pitched(struct vgpu_charge *charge, CUresult result, CUdeviceptr pointer, uint64_t pitch,
                        uint64_t height) {
  if (result == CUDA_SUCCESS) vgpu_charge_resize_linear(charge, vgpu_product(pitch, height));
  return finish(charge, result, &pointer);
}

EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                           size_t Height, unsigned int ElementSizeBytes) {
  if (!vgpu_enter()) {
    return REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  }
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_linear(&charge, vgpu_product(vgpu_rounded(WidthInBytes, ROW), Height))) {
    result = REAL(cuMemAllocPitch_v2)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    bool done = result == CUDA_SUCCESS;
    result = finish_pitched(&charge, result, done ? *dptr : 0, done ? *pPitch : 0, Height);
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch,
                                        unsigned int WidthInBytes, unsigned int Height,
                                        unsigned int ElementSizeBytes) {
  if (!vgpu_enter()) {
    return REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
  }
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_linear(&charge, vgpu_product(vgpu_rounded(WidthInBytes, ROW), Height))) {
    result = REAL(cuMemAllocPitch)(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    bool done = result == CUDA_SUCCESS;
    result = finish_pitched(&charge, result, done ? *dptr : 0, done ? *pPitch : 0, Height);
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr) {
  if (!vgpu_enter()) return REAL(cuMemFree_v2)(dptr);
  struct vgpu_item item;
  CUresult result;
  /* Remove it from the map first: the driver may return the address to another thread meanwhile. */
  if (vgpu_map_take(&vgpu_memory, dptr, &item)) {
    result = REAL(cuMemFree_v2)(dptr);
    vgpu_charge_freed(&vgpu_memory, &item, result);
  } else {
    struct vgpu_pool_free pooled = vgpu_pool_begin_free(dptr);
    result = REAL(cuMemFree_v2)(dptr);
    vgpu_pool_end_free(&pooled, result);
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemFree(CUdeviceptr_v1 dptr) {
  if (!vgpu_enter()) return REAL(cuMemFree)(dptr);
  struct vgpu_item item;
  bool ours = vgpu_map_take(&vgpu_memory, dptr, &item);
  CUresult result = REAL(cuMemFree)(dptr);
  if (ours) vgpu_charge_freed(&vgpu_memory, &item, result);
  vgpu_leave();
  return result;
}

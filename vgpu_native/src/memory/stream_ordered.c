/* CUDA's stream-ordered memory allocator: cuMemAllocAsync, cuMemAllocFromPoolAsync and cuMemFreeAsync,
 * each with the legacy null stream and with the thread's own; and the pools that they take from. */
#include "intercept/device_lookup.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "memory/charges/memory_pools.h"
#include "util/cancellation.h"

/* The device of a context, which may not be the current one. */
static CUresult device_in(CUcontext context, CUdevice *device) {
  CUcontext current;
  if (REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context) {
    return REAL(cuCtxGetDevice)(device);
  }
  CUresult result = REAL(cuCtxPushCurrent_v2)(context);
  if (result != CUDA_SUCCESS) return result;
  result = REAL(cuCtxGetDevice)(device);
  REAL(cuCtxPopCurrent_v2)(&context);
  return result;
}

/* The device of a stream; for the null streams, of the current context. Drivers before 12.8 return only
 * a stream's context. */
static CUresult device_of(CUstream stream, CUdevice *device) {
  CUcontext context;
  if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD) return REAL(cuCtxGetDevice)(device);
  if (REAL(cuStreamGetDevice)(stream, device) == CUDA_SUCCESS) return CUDA_SUCCESS;
  CUresult result = REAL(cuStreamGetCtx)(stream, &context);
  return result == CUDA_SUCCESS ? device_in(context, device) : result;
}

static struct vgpu_pool *pool_of_stream(CUstream stream) {
  CUdevice device;
  CUmemoryPool handle;
  if (device_of(stream, &device) != CUDA_SUCCESS) return NULL;
  if (REAL(cuDeviceGetMemPool)(&handle, device) != CUDA_SUCCESS) return NULL;
  return vgpu_pool_of(handle);
}

/* After the driver's call: free an allocation that enlarged a pool beyond the limit. */
static CUresult finish_alloc(struct vgpu_growth *growth, CUresult result, const CUdeviceptr *pointer,
                        CUstream stream, CUresult (*undo)(CUdeviceptr, CUstream)) {
  if (vgpu_pool_end_growth(growth, result, pointer)) return result;
  undo(*pointer, stream);
  vgpu_pool_undo_growth(growth);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory of cuMemAlloc may also be freed in a stream. It is in use until the stream reaches that. */
static CUresult free_ordered(CUdeviceptr pointer, CUstream stream, CUresult (*real)(CUdeviceptr, CUstream)) {
  struct vgpu_item item;
  struct vgpu_pool_free pooled = vgpu_pool_begin_free(pointer);
  bool linear = !pooled.known && vgpu_charge_leaving(pointer, &item);
  CUresult result = real(pointer, stream);
  if (linear && result == CUDA_SUCCESS) vgpu_charge_doubt(vgpu_charge_entry(&item));
  vgpu_pool_end_free(&pooled, result);
  return result;
}

/* Whether a call only becomes a node of a graph. The memory of nodes is charged when the graph is
 * launched. */
static bool is_captured(CUstream stream, CUresult (*ask)(CUstream, CUstreamCaptureStatus *)) {
  CUstreamCaptureStatus status;
  return ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The two forms of a function differ in their names alone. */
#define ASYNC(FORM)                                                                               \
  EXPORT CUresult CUDAAPI cuMemAllocAsync##FORM(CUdeviceptr *dptr, size_t bytesize,               \
                                                CUstream hStream) {                               \
    if (!vgpu_enter()) return REAL(cuMemAllocAsync##FORM)(dptr, bytesize, hStream);               \
    int cancel_state = vgpu_defer_cancellation();                                                 \
    struct vgpu_growth growth;                                                                    \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                   \
    if (is_captured(hStream, REAL(cuStreamIsCapturing##FORM))) {                                  \
      result = REAL(cuMemAllocAsync##FORM)(dptr, bytesize, hStream);                              \
    } else if (vgpu_pool_begin_growth(&growth, pool_of_stream(hStream), bytesize)) {              \
      result = REAL(cuMemAllocAsync##FORM)(dptr, bytesize, hStream);                              \
      result = finish_alloc(&growth, result, dptr, hStream, REAL(cuMemFreeAsync##FORM));          \
    }                                                                                             \
    vgpu_restore_cancellation(cancel_state);                                                      \
    vgpu_leave();                                                                                 \
    return result;                                                                                \
  }                                                                                               \
                                                                                                  \
  EXPORT CUresult CUDAAPI cuMemAllocFromPoolAsync##FORM(CUdeviceptr *dptr, size_t bytesize,       \
                                                        CUmemoryPool pool, CUstream hStream) {    \
    if (!vgpu_enter()) return REAL(cuMemAllocFromPoolAsync##FORM)(dptr, bytesize, pool, hStream); \
    int cancel_state = vgpu_defer_cancellation();                                                 \
    struct vgpu_growth growth;                                                                    \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                   \
    if (is_captured(hStream, REAL(cuStreamIsCapturing##FORM))) {                                  \
      result = REAL(cuMemAllocFromPoolAsync##FORM)(dptr, bytesize, pool, hStream);                \
    } else if (vgpu_pool_begin_growth(&growth, vgpu_pool_of(pool), bytesize)) {                   \
      result = REAL(cuMemAllocFromPoolAsync##FORM)(dptr, bytesize, pool, hStream);                \
      result = finish_alloc(&growth, result, dptr, hStream, REAL(cuMemFreeAsync##FORM));          \
    }                                                                                             \
    vgpu_restore_cancellation(cancel_state);                                                      \
    vgpu_leave();                                                                                 \
    return result;                                                                                \
  }                                                                                               \
                                                                                                  \
  EXPORT CUresult CUDAAPI cuMemFreeAsync##FORM(CUdeviceptr dptr, CUstream hStream) {              \
    if (!vgpu_enter()) return REAL(cuMemFreeAsync##FORM)(dptr, hStream);                          \
    int cancel_state = vgpu_defer_cancellation();                                                 \
    CUresult result = free_ordered(dptr, hStream, REAL(cuMemFreeAsync##FORM));                    \
    vgpu_restore_cancellation(cancel_state);                                                      \
    vgpu_leave();                                                                                 \
    return result;                                                                                \
  }

ASYNC()
ASYNC(_ptsz)

EXPORT CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
  if (!vgpu_enter()) return REAL(cuMemPoolCreate)(pool, poolProps);
  CUresult result = REAL(cuMemPoolCreate)(pool, poolProps);
  if (result == CUDA_SUCCESS) {
    bool device = poolProps->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    vgpu_pool_created(*pool, device ? vgpu_device_entry(poolProps->location.id) : -1);
  }
  vgpu_leave();
  return result;
}

/* An imported pool allocates nothing; it is charged in the process that created it. */
EXPORT CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                           CUmemAllocationHandleType handleType,
                                                           unsigned long long flags) {
  if (!vgpu_enter()) {
    return REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
  }
  CUresult result = REAL(cuMemPoolImportFromShareableHandle)(pool_out, handle, handleType, flags);
  if (result == CUDA_SUCCESS) vgpu_pool_created(*pool_out, -1);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  if (!vgpu_enter()) return REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
  CUresult result = REAL(cuMemPoolTrimTo)(pool, minBytesToKeep);
  vgpu_pool_update_charge(vgpu_pool_of(pool));
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  if (!vgpu_enter()) return REAL(cuMemPoolDestroy)(pool);
  struct vgpu_pool *ending = vgpu_pool_begin_destroy(pool);
  CUresult result = REAL(cuMemPoolDestroy)(pool);
  vgpu_pool_end_destroy(ending, pool, result);
  vgpu_leave();
  return result;
}

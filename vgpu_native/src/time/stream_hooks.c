/* Hooks of streams: what waits for a stream lets pools give memory back to the card, and a stream
 * that is destroyed is no longer used to measure launches in others. */
#include "intercept/hook.h"
#include "memory/graphs.h"
#include "memory/pools.h"
#include "time/meter.h"

static CUresult waited(CUresult result) {
  if ((vgpu_pools_any() || vgpu_graphs_any()) && vgpu_enter()) {
    vgpu_pools_settle();
    vgpu_graphs_settle();
    vgpu_leave();
  }
  return result;
}

EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream hStream) {
  return waited(REAL(cuStreamSynchronize)(hStream));
}

EXPORT CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream hStream) {
  return waited(REAL(cuStreamSynchronize_ptsz)(hStream));
}

EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) {
  return waited(REAL(cuEventSynchronize)(hEvent));
}

EXPORT CUresult CUDAAPI cuCtxSynchronize(void) { return waited(REAL(cuCtxSynchronize)()); }

EXPORT CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) {
  return waited(REAL(cuCtxSynchronize_v2)(ctx));
}

EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy)(hStream);
}

EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy_v2)(hStream);
}

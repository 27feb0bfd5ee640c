/* Synchronised and destroyed streams. During a synchronisation pools may give memory back to the card, so
 * their charges are read again. The launches before it have ended, so that their time can be charged. A destroyed stream is no longer used to measure launches in others. */
#include "intercept/nested_calls.h"
#include "memory/graph_memory.h"
#include "memory/charges/memory_pools.h"
#include "time/launch_meter.h"

static CUresult after_wait(CUresult result) {
  if (vgpu_samples_wait() && vgpu_enter()) {
    vgpu_meter_read();
    vgpu_leave();
  }
  if ((vgpu_pools_exist() || vgpu_graphs_have_memory()) && vgpu_enter()) {
    vgpu_pools_update_charges();
    vgpu_graphs_update_charges();
    vgpu_leave();
  }
  return result;
}

EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream hStream) {
  return after_wait(REAL(cuStreamSynchronize)(hStream));
}

EXPORT CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream hStream) {
  return after_wait(REAL(cuStreamSynchronize_ptsz)(hStream));
}

EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) {
  return after_wait(REAL(cuEventSynchronize)(hEvent));
}

EXPORT CUresult CUDAAPI cuCtxSynchronize(void) { return after_wait(REAL(cuCtxSynchronize)()); }

EXPORT CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) {
  return after_wait(REAL(cuCtxSynchronize_v2)(ctx));
}

EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy)(hStream);
}

EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy_v2)(hStream);
}

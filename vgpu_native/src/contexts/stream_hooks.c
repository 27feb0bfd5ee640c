/* Synchronised and destroyed streams. The launches before a synchronisation have ended, so that their time can be
 * charged. Pools may give memory back to the card meanwhile, so their charges are read again. A destroyed stream is no
 * longer used to measure launches in others. */
#include "intercept/nested_calls.h"
#include "memory/graph_memory.h"
#include "memory/charges/memory_pools.h"
#include "contexts/long_waits.h"
#include "time/launch_meter.h"

static CUresult after_wait(CUresult result, const struct vgpu_wait *wait) {
  if (vgpu_samples_wait() && vgpu_enter()) {
    vgpu_meter_read();
    vgpu_leave();
  }
  vgpu_wait_end(wait);
  if ((vgpu_pools_exist() || vgpu_graphs_have_memory()) && vgpu_enter()) {
    vgpu_pools_update_charges();
    vgpu_graphs_update_charges();
    vgpu_leave();
  }
  return result;
}

#define WAITED(call)                        \
  struct vgpu_wait wait = vgpu_wait_begin(); \
  return after_wait(call, &wait)

EXPORT CUresult CUDAAPI cuStreamSynchronize(CUstream hStream) { WAITED(REAL(cuStreamSynchronize)(hStream)); }

EXPORT CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream hStream) { WAITED(REAL(cuStreamSynchronize_ptsz)(hStream)); }

EXPORT CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) { WAITED(REAL(cuEventSynchronize)(hEvent)); }

EXPORT CUresult CUDAAPI cuCtxSynchronize(void) { WAITED(REAL(cuCtxSynchronize)()); }

EXPORT CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) { WAITED(REAL(cuCtxSynchronize_v2)(ctx)); }

EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy)(hStream);
}

EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy_v2)(hStream);
}

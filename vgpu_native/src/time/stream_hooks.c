/* Hooks that say when a stream ends, so that it is used no more to measure launches in others. */
#include "time/meter.h"

EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy)(hStream);
}

EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) {
  vgpu_meter_forget_stream(hStream);
  return REAL(cuStreamDestroy_v2)(hStream);
}

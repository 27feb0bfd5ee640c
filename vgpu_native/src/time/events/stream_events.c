/* Every call that may meet another thread's capture is made in the relaxed mode, which invalidates none. */
#include "time/events/stream_events.h"

bool vgpu_context_gone(CUresult result) {
  return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
         result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_DEINITIALIZED;
}

CUstreamCaptureMode vgpu_exchange_capture_mode(CUstreamCaptureMode mode) {
  if (HAS(cuThreadExchangeStreamCaptureMode)) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  return mode;
}

bool vgpu_is_capturing(struct vgpu_stream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!HAS(cuStreamIsCapturing)) return false;
  CUresult result = stream.per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream.handle, &status)
                                      : REAL(cuStreamIsCapturing)(stream.handle, &status);
  /* Returned for the legacy stream while another stream captures. */
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult vgpu_record_event(CUevent event, struct vgpu_stream stream) {
  return (stream.per_thread ? REAL(cuEventRecord_ptsz)(event, stream.handle)
                            : REAL(cuEventRecord)(event, stream.handle));
}

CUcontext vgpu_stream_context(struct vgpu_stream stream) {
  CUcontext context = NULL;
  bool real = stream.handle && stream.handle != CU_STREAM_LEGACY && stream.handle != CU_STREAM_PER_THREAD;
  if (real && HAS(cuStreamGetCtx)) {
    if (REAL(cuStreamGetCtx)(stream.handle, &context) == CUDA_SUCCESS && context) return context;
  }
  return REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : NULL;
}

bool vgpu_event_passed(CUevent event) {
  CUstreamCaptureMode before = vgpu_exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = REAL(cuEventQuery)(event);
  vgpu_exchange_capture_mode(before);
  return result == CUDA_SUCCESS;
}

bool vgpu_stream_done(struct vgpu_stream stream) {
  CUstreamCaptureMode before = vgpu_exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  CUresult result = stream.per_thread ? REAL(cuStreamQuery_ptsz)(stream.handle) : REAL(cuStreamQuery)(stream.handle);
  vgpu_exchange_capture_mode(before);
  return result == CUDA_SUCCESS;
}

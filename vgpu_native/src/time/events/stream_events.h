/* Events of the driver in streams: recording and asking, beside captures and contexts that have ended. */
#pragma once

#include <stdbool.h>

#include "driver.h"

/* A stream as a parameter of a driver's function; for some functions NULL means the thread's own. */
struct vgpu_stream {
  CUstream handle;
  bool per_thread;
};

/* Whether launches in a stream are only captured for a graph. */
bool vgpu_is_capturing(struct vgpu_stream stream);

/* Set this thread's mode of captures, and return the one before. In the relaxed mode a call does not invalidate
 * another thread's capture. */
CUstreamCaptureMode vgpu_exchange_capture_mode(CUstreamCaptureMode mode);

/* The context whose events can be recorded in a stream, which may not be the current one; NULL: none. */
CUcontext vgpu_stream_context(struct vgpu_stream stream);

/* Whether a result means that the context ended, and its events with it, although no hook saw that. */
bool vgpu_context_gone(CUresult result);

/* Record an event in a stream; whether it has passed; and whether all work of a stream has ended. */
CUresult vgpu_record_event(CUevent event, struct vgpu_stream stream);
bool vgpu_event_passed(CUevent event);
bool vgpu_stream_done(struct vgpu_stream stream);

/* Streams and events. The end of work is known when it is queued, so a wait is a sleep. */
#include "cuda_stub.h"

#include <pthread.h>
#include <stdlib.h>

#define STREAM 0x5354524du
#define EVENT 0x45564e54u

static _Thread_local CUstream mine; /* the thread's own stream, of the context it was last used in */
static _Atomic uint64_t streams_made;

static CUstream make(CUcontext context, unsigned flags, int priority)
{
  CUstream made = calloc(1, sizeof *made);
  if (!made) return NULL;
  *made = (struct CUstream_st){.magic = STREAM, .flags = flags, .priority = priority, .context = context};
  made->id = ++streams_made;
  return made;
}

static CUstream legacy(CUcontext now)
{
  if (now->legacy) return now->legacy;
  stub_lock_objects();
  if (!now->legacy) now->legacy = make(now, CU_STREAM_DEFAULT, 0);
  stub_unlock_objects();
  return now->legacy;
}

CUstream stub_stream(CUstream handle)
{
  CUcontext now = stub_context();
  if (!handle) handle = stub_per_thread() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY) return now ? legacy(now) : NULL;
  if (handle != CU_STREAM_PER_THREAD) return handle->magic == STREAM ? handle : NULL;
  if (now && (!mine || mine->context != now)) mine = make(now, CU_STREAM_DEFAULT, 0);
  return now ? mine : NULL;
}

/* The legacy stream follows all other streams of its context. */
uint64_t stub_stream_end(CUstream stream)
{
  bool all = stream == stream->context->legacy;
  return all ? stream->context->last_end : stream->last_end;
}

CUresult stub_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
  if (!stream || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = make(stub_context(), flags, priority);
  return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuStreamCreate(CUstream *stream, unsigned flags)
{
  return stub_cuStreamCreateWithPriority(stream, flags, 0);
}

/* The object stays, so that a stale handle is detected. */
CUresult stub_cuStreamDestroy_v2(CUstream handle)
{
  if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || handle->magic != STREAM)
    return CUDA_ERROR_INVALID_HANDLE;
  handle->magic = 0;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamDestroy(CUstream stream) { return stub_cuStreamDestroy_v2(stream); }

/* The common start of most functions of a stream. */
#define STREAM_OF(handle)                                       \
  CUstream stream = stub_stream(handle);                        \
  if (!stream) return CUDA_ERROR_INVALID_HANDLE

CUresult stub_cuStreamGetPriority(CUstream handle, int *priority)
{
  STREAM_OF(handle);
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetFlags(CUstream handle, unsigned *flags)
{
  STREAM_OF(handle);
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetId(CUstream handle, unsigned long long *id)
{
  STREAM_OF(handle);
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetCtx(CUstream handle, CUcontext *context)
{
  STREAM_OF(handle);
  *context = stream->context;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetDevice(CUstream handle, CUdevice *device)
{
  STREAM_OF(handle);
  *device = stream->context->device;
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamQuery(CUstream handle)
{
  STREAM_OF(handle);
  if (stub_capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  STUB_UNSAFE;
  return stub_stream_end(stream) > stub_now() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult stub_cuStreamSynchronize(CUstream handle)
{
  STREAM_OF(handle);
  if (stub_capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  STUB_UNSAFE;
  stub_wait_until(stub_stream_end(stream));
  stub_pools_settle(stream->context->device);
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
  (void)flags;
  STREAM_OF(handle);
  if (!event || event->magic != EVENT) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture && event->capture->open) stream->capture = event->capture; /* it joins */
  else stub_extend(&stream->last_end, event->time);
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamAttachMemAsync(CUstream handle, CUdeviceptr at, size_t length, unsigned flags)
{
  (void)at, (void)length, (void)flags;
  STREAM_OF(handle);
  return CUDA_SUCCESS;
}

/* --- callbacks: a thread sleeps until the stream's work has ended --- */

struct call {
  CUstream stream;
  CUhostFn host;
  CUstreamCallback callback;
  void *data;
  uint64_t when;
};

static void *call_later(void *given)
{
  struct call call = *(struct call *)given;
  free(given);
  stub_wait_until(call.when);
  if (call.host) call.host(call.data);
  if (call.callback) call.callback(call.stream, CUDA_SUCCESS, call.data);
  return NULL;
}

static CUresult later(struct call call)
{
  pthread_t thread;
  struct call *given = malloc(sizeof *given);
  if (!given) return CUDA_ERROR_OUT_OF_MEMORY;
  *given = call;
  if (pthread_create(&thread, NULL, call_later, given)) {
    free(given);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_detach(thread);
  return CUDA_SUCCESS;
}

CUresult stub_cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned flags)
{
  STREAM_OF(handle);
  if (flags || !callback) return CUDA_ERROR_INVALID_VALUE;
  return later((struct call){stream, NULL, callback, data, stub_stream_end(stream)});
}

CUresult stub_cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
  STREAM_OF(handle);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  if (stub_capturing(stream)) return CUDA_SUCCESS;
  return later((struct call){stream, function, NULL, data, stub_stream_end(stream)});
}

/* --- events --- */

static uint64_t event_ns, tick_ns;
static _Atomic uint64_t dead_uses;

__attribute__((constructor)) static void read_environment(void)
{
  event_ns = stub_setting("VGPU_STUB_EVENT_NS", 0);
  tick_ns = stub_setting("VGPU_STUB_TICK_NS", 1);
}

EXPORT uint64_t vgpu_stub_dead_uses(void) { return dead_uses; }

/* Events end with their context. A real driver may crash when a program uses such an event. */
static bool is_dead(CUevent event)
{
  bool dead = !stub_alive(event->context) || event->context->id != event->context_id;
  dead_uses += dead;
  return dead;
}

/* A mark in a stream: it takes time there, too, and its time is a multiple of the clock's tick. */
static uint64_t mark(CUstream stream)
{
  uint64_t end = stub_stream_end(stream), now = stub_now(), turn = stub_turn(stream->context->device);
  if (end < turn) end = turn;
  uint64_t at = (end > now ? end : now) + event_ns;
  if (event_ns) {
    stub_extend(&stream->last_end, at);
    stub_extend(&stream->context->last_end, at);
  }
  return at;
}

CUresult stub_cuEventCreate(CUevent *event, unsigned flags)
{
  if (!event || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *event = calloc(1, sizeof **event);
  if (!*event) return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext now = stub_context();
  **event = (struct CUevent_st){.magic = EVENT, .flags = flags, .context = now, .context_id = now->id};
  return CUDA_SUCCESS;
}

#define EVENT_OF(event)                                                         \
  if (!(event) || (event)->magic != EVENT) return CUDA_ERROR_INVALID_HANDLE; \
  if (is_dead(event)) return CUDA_ERROR_CONTEXT_IS_DESTROYED

CUresult stub_cuEventDestroy_v2(CUevent event)
{
  EVENT_OF(event);
  event->magic = 0;
  return CUDA_SUCCESS;
}

CUresult stub_cuEventDestroy(CUevent event) { return stub_cuEventDestroy_v2(event); }

CUresult stub_cuEventRecord(CUevent event, CUstream handle)
{
  EVENT_OF(event);
  STREAM_OF(handle);
  event->capture = stub_capturing(stream) ? stream->capture : NULL;
  if (event->capture) return CUDA_SUCCESS;
  event->time = mark(stream);
  return CUDA_SUCCESS;
}

CUresult stub_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : stub_cuEventRecord(event, stream);
}

CUresult stub_cuEventQuery(CUevent event)
{
  EVENT_OF(event);
  STUB_UNSAFE;
  return event->time > stub_now() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult stub_cuEventSynchronize(CUevent event)
{
  EVENT_OF(event);
  STUB_UNSAFE;
  stub_wait_until(event->time);
  if (stub_device() >= 0) stub_pools_settle(stub_device());
  return CUDA_SUCCESS;
}

CUresult stub_cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
  EVENT_OF(start);
  EVENT_OF(end);
  if (!ms) return CUDA_ERROR_INVALID_VALUE;
  bool timed = !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING);
  if (!timed || !start->time || !end->time) return CUDA_ERROR_INVALID_HANDLE;
  if (start->time > stub_now() || end->time > stub_now()) return CUDA_ERROR_NOT_READY;
  *ms = (float)((double)(int64_t)(end->time / tick_ns - start->time / tick_ns) * (double)tick_ns / 1e6);
  return CUDA_SUCCESS;
}

CUresult stub_cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
  return stub_cuEventElapsedTime_v2(ms, start, end);
}

/* The state of a sample decides its owner: the launching thread while it is TAKEN, the reader while it is
 * WAITING. Its events are kept for the next measurement in the same context. */
#include "time/launch_samples.h"

#include <pthread.h>
#include <string.h>

#include "time/time_budget.h"
#include "util/assert.h"
#include "util/lock_order.h"

enum { FREE, TAKEN, WAITING };
enum { COUNT = 128 };

#define TORN_NS 50000 /* an undelayed launch with its measurement takes less */

static struct vgpu_sample samples[COUNT];
static unsigned last; /* the last taken sample, which is usually free again and has events */

/* Held while the driver reads waiting samples, so that no context ends meanwhile. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static void lock_reading(void) {
  vgpu_rank_take(VGPU_RANK_SAMPLES);
  pthread_mutex_lock(&reading);
}

static void unlock_reading(void) {
  vgpu_rank_leave(VGPU_RANK_SAMPLES);
  pthread_mutex_unlock(&reading);
}

static bool is_in(const struct vgpu_sample *sample, uint32_t state) {
  return __atomic_load_n(&sample->state, __ATOMIC_RELAXED) == state;
}

static bool try_take(struct vgpu_sample *sample, uint32_t from) {
  return __atomic_compare_exchange_n(&sample->state, &from, TAKEN, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED);
}

static void put(struct vgpu_sample *sample, uint32_t state) {
  __atomic_store_n(&sample->state, state, __ATOMIC_RELEASE);
}

/* In the relaxed mode a call does not invalidate another thread's capture. */
static CUstreamCaptureMode exchange(CUstreamCaptureMode mode) {
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

static bool record(CUevent event, struct vgpu_stream stream) {
  return (stream.per_thread ? REAL(cuEventRecord_ptsz)(event, stream.handle)
                            : REAL(cuEventRecord)(event, stream.handle)) == CUDA_SUCCESS;
}

/* The context whose events can be recorded in a stream, which may not be the current one. */
static CUcontext context_of(struct vgpu_stream stream) {
  CUcontext context = NULL;
  bool real = stream.handle && stream.handle != CU_STREAM_LEGACY && stream.handle != CU_STREAM_PER_THREAD;
  if (real && HAS(cuStreamGetCtx)) {
    if (REAL(cuStreamGetCtx)(stream.handle, &context) == CUDA_SUCCESS && context) return context;
  }
  return REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : NULL;
}

static void destroy_events(struct vgpu_sample *sample) {
  REAL(cuEventDestroy_v2)(sample->begin);
  REAL(cuEventDestroy_v2)(sample->end);
  REAL(cuEventDestroy_v2)(sample->before);
  sample->context = NULL;
}

static bool create_events(struct vgpu_sample *sample, CUcontext context) {
  CUevent *const events[] = {&sample->begin, &sample->end, &sample->before};
  CUcontext popped;
  if (sample->context) destroy_events(sample);
  if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return false;
  int made = 0;
  while (made < 3 && REAL(cuEventCreate)(events[made], CU_EVENT_DEFAULT) == CUDA_SUCCESS) made++;
  if (made == 3) sample->context = context;
  else while (made) REAL(cuEventDestroy_v2)(*events[--made]);
  REAL(cuCtxPopCurrent_v2)(&popped);
  return sample->context != NULL;
}

/* Take a free sample: one with events of the context, else one without events, else any. */
static struct vgpu_sample *take_for(CUcontext context) {
  unsigned first = __atomic_load_n(&last, __ATOMIC_RELAXED);
  for (int choice = 0; choice < 3; choice++) {
    for (unsigned i = 0; i < COUNT; i++) {
      unsigned place = (first + i) % COUNT;
      struct vgpu_sample *sample = &samples[place];
      CUcontext has = __atomic_load_n(&sample->context, __ATOMIC_RELAXED);
      if (choice < 2 && has != (choice ? NULL : context)) continue;
      if (!try_take(sample, FREE)) continue;
      __atomic_store_n(&last, place, __ATOMIC_RELAXED);
      return sample;
    }
  }
  return NULL;
}

static struct vgpu_sample *begin(struct vgpu_stream stream, CUstream last) {
  CUcontext context = context_of(stream);
  struct vgpu_sample *sample = context ? take_for(context) : NULL;
  if (!sample) return NULL;
  bool ready = sample->context == context || create_events(sample, context);
  if (ready && record(sample->begin, stream)) {
    struct vgpu_stream other = {last, false};
    sample->follows = last && !vgpu_is_capturing(other) && record(sample->before, other);
    sample->begun = vgpu_monotonic();
    return sample;
  }
  put(sample, FREE);
  return NULL;
}

struct vgpu_sample *vgpu_sample_begin(struct vgpu_stream stream, CUstream last) {
  CUstreamCaptureMode before = exchange(CU_STREAM_CAPTURE_MODE_RELAXED);
  struct vgpu_sample *sample = begin(stream, last);
  exchange(before);
  return sample;
}

void vgpu_sample_launch(struct vgpu_sample *sample) {
  VGPU_ASSERT(is_in(sample, TAKEN) && sample->context);
  /* If the event has already passed, the device is idle until the launch. */
  bool idle = REAL(cuEventQuery)(sample->begin) == CUDA_SUCCESS;
  sample->idle = idle ? vgpu_monotonic() - sample->begun : 0;
}

bool vgpu_sample_end(struct vgpu_sample *sample, struct vgpu_stream stream) {
  bool recorded = record(sample->end, stream);
  sample->torn = vgpu_monotonic() - sample->begun > TORN_NS;
  return recorded;
}

void vgpu_sample_keep(struct vgpu_sample *sample) {
  VGPU_ASSERT(is_in(sample, TAKEN));
  put(sample, WAITING);
}

void vgpu_sample_drop(struct vgpu_sample *sample) {
  VGPU_ASSERT(is_in(sample, TAKEN));
  put(sample, FREE);
}

static double elapsed_ns(CUevent from, CUevent to) {
  float ms = 0;
  return REAL(cuEventElapsedTime)(&ms, from, to) == CUDA_SUCCESS ? (double)ms * 1e6 : -1;
}

/* The nanoseconds for which an ended launch kept the device busy. If it overlapped a launch in another
 * stream, only the time after the end of that one counts, so that each moment counts for one launch. */
static uint64_t busy_ns(const struct vgpu_sample *sample) {
  double ns = elapsed_ns(sample->begin, sample->end) - (double)sample->idle;
  if (sample->follows) {
    bool ended_before = REAL(cuEventQuery)(sample->before) == CUDA_SUCCESS;
    double after = ended_before ? elapsed_ns(sample->before, sample->end) : 0;
    if (after < ns) ns = after;
  }
  return ns > 1 ? (uint64_t)ns : 1;
}

/* Read one waiting sample. True: it has ended. */
static bool read_one(struct vgpu_sample *sample, vgpu_sample_ended *ended) {
  VGPU_ASSERT(is_in(sample, WAITING) && vgpu_rank_held(VGPU_RANK_SAMPLES));
  CUcontext current = NULL;
  REAL(cuCtxGetCurrent)(&current);
  if (current != sample->context) REAL(cuCtxSetCurrent)(sample->context);
  CUresult result = REAL(cuEventQuery)(sample->end);
  if (result == CUDA_ERROR_NOT_READY) return false;
  ended(sample, result == CUDA_SUCCESS ? busy_ns(sample) : 0);
  put(sample, FREE);
  return true;
}

unsigned vgpu_samples_read(vgpu_sample_ended *ended) {
  unsigned waiting = 0;
  CUcontext before = NULL, after = NULL;
  CUstreamCaptureMode mode = exchange(CU_STREAM_CAPTURE_MODE_RELAXED);
  REAL(cuCtxGetCurrent)(&before);
  lock_reading();
  for (unsigned i = 0; i < COUNT; i++) {
    if (__atomic_load_n(&samples[i].state, __ATOMIC_ACQUIRE) != WAITING) continue;
    waiting += !read_one(&samples[i], ended);
  }
  unlock_reading();
  /* Restore the context, because the thread may be the program's. */
  REAL(cuCtxGetCurrent)(&after);
  if (after != before) REAL(cuCtxSetCurrent)(before);
  exchange(mode);
  return waiting;
}

void vgpu_samples_forget(CUcontext context, vgpu_sample_ended *ended) {
  lock_reading();
  for (unsigned i = 0; i < COUNT; i++) {
    struct vgpu_sample *sample = &samples[i];
    CUcontext has = __atomic_load_n(&sample->context, __ATOMIC_RELAXED);
    if (!has || (context && has != context)) continue;
    bool waits = try_take(sample, WAITING);
    if (!waits && !try_take(sample, FREE)) continue;
    if (waits) ended(sample, 0);
    sample->context = NULL;
    put(sample, FREE);
  }
  unlock_reading();
}

void vgpu_samples_reset(void) {
  memset(samples, 0, sizeof samples);
  reading = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* The state of a sample decides its owner: the launching thread while it is TAKEN, the reader while it is
 * WAITING. Its events are kept for the next measurement in the same context. */
#include "time/launch_samples.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "layout.h"
#include "time/events/blocking_launches.h"
#include "time/events/event_times.h"
#include "time/time_budget.h"
#include "util/assert.h"
#include "util/lock_order.h"

enum { FREE, TAKEN, WAITING };
enum { COUNT = 256, FULL = 192 };

/* The longest wait for the launches of a context that is destroyed: if none has begun, and if one has. */
#define FORGET_NS 100000000ULL
#define FORGET_RUNNING_NS 1000000000ULL
#define TORN_NS 50000 /* an undelayed launch with its measurement takes less */

static struct vgpu_sample samples[COUNT];
static uint64_t oldest[VGPU_DEVICES_MAX];
static uint64_t last_end[VGPU_DEVICES_MAX]; /* when a device's last sample was seen to have ended */
static int waiting_now; /* samples that wait */
static unsigned last;   /* the last taken sample, which is usually free again and has events */

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

static void count_waiting(int change) { __atomic_fetch_add(&waiting_now, change, __ATOMIC_RELAXED); }

uint64_t vgpu_samples_oldest(int entry) { return __atomic_load_n(&oldest[entry], __ATOMIC_RELAXED); }

bool vgpu_samples_wait(void) { return __atomic_load_n(&waiting_now, __ATOMIC_RELAXED) > 0; }

bool vgpu_samples_full(void) { return __atomic_load_n(&waiting_now, __ATOMIC_RELAXED) >= FULL; }

/* Other threads read it while they look for a sample. */
static void set_context(struct vgpu_sample *sample, CUcontext context) {
  __atomic_store_n(&sample->context, context, __ATOMIC_RELAXED);
}

static void destroy_events(struct vgpu_sample *sample) {
  CUevent events[] = {sample->begin, sample->end, sample->before, sample->after};
  for (unsigned i = 0; i < 4 && !vgpu_context_gone(REAL(cuEventDestroy_v2)(events[i])); i++) continue;
  set_context(sample, NULL);
}

static bool create_events(struct vgpu_sample *sample, CUcontext context) {
  CUevent *const events[] = {&sample->begin, &sample->end, &sample->before, &sample->after};
  CUcontext popped;
  if (sample->context) destroy_events(sample);
  if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return false;
  int made = 0;
  while (made < 4 && REAL(cuEventCreate)(events[made], CU_EVENT_DEFAULT) == CUDA_SUCCESS) made++;
  if (made == 4) set_context(sample, context);
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

/* Record the first event. If the events are those of an ended context at the same address, create new ones. */
static bool record_begin(struct vgpu_sample *sample, CUcontext context, struct vgpu_stream stream) {
  if (sample->context != context && !create_events(sample, context)) return false;
  CUresult result = vgpu_record_event(sample->begin, stream);
  if (!vgpu_context_gone(result)) return result == CUDA_SUCCESS;
  set_context(sample, NULL);
  return create_events(sample, context) && vgpu_record_event(sample->begin, stream) == CUDA_SUCCESS;
}

/* Record the end of the work in the stream of the last launch, unless a tail has it. */
static bool record_before(struct vgpu_sample *sample, CUstream last) {
  struct vgpu_stream other = {last, false};
  return last && !vgpu_is_capturing(other) && vgpu_record_event(sample->before, other) == CUDA_SUCCESS;
}

static struct vgpu_sample *begin(int entry, struct vgpu_stream stream, CUstream last, struct vgpu_sample *tail) {
  CUcontext context = vgpu_stream_context(stream);
  if (tail && tail->context != context) {
    put(tail, FREE);
    tail = NULL;
  }
  struct vgpu_sample *sample = tail ? tail : context ? take_for(context) : NULL;
  if (!sample) return NULL;
  sample->begun = vgpu_monotonic();
  sample->started = sample->advanced = 0;
  if (record_begin(sample, context, stream)) {
    sample->follows = tail || record_before(sample, last);
    sample->entry = entry;
    sample->recorded = vgpu_monotonic();
    sample->passed = REAL(cuEventQuery)(sample->begin) == CUDA_SUCCESS;
    return sample;
  }
  put(sample, FREE);
  return NULL;
}

/* Record the end of a stream in a sample with events of the stream's context. */
static struct vgpu_sample *end_stream(CUstream stream, struct vgpu_sample *tail) {
  CUcontext context = vgpu_stream_context((struct vgpu_stream){stream, false});
  if (tail && tail->context != context) {
    put(tail, FREE);
    tail = NULL;
  }
  if (!tail && !(tail = context ? take_for(context) : NULL)) return NULL;
  bool ready = tail->context == context || create_events(tail, context);
  if (ready && record_before(tail, stream)) return tail;
  put(tail, FREE);
  return NULL;
}

struct vgpu_sample *vgpu_sample_end_stream(CUstream stream, struct vgpu_sample *tail) {
  CUstreamCaptureMode before = vgpu_exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  tail = end_stream(stream, tail);
  vgpu_exchange_capture_mode(before);
  return tail;
}

struct vgpu_sample *vgpu_sample_begin(int entry, struct vgpu_stream stream, CUstream last,
                                      struct vgpu_sample *tail) {
  CUstreamCaptureMode before = vgpu_exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  struct vgpu_sample *sample = begin(entry, stream, last, tail);
  vgpu_exchange_capture_mode(before);
  return sample;
}

/* A device that has passed the first event is idle until the launch. */
void vgpu_sample_launch(struct vgpu_sample *sample) {
  VGPU_ASSERT(is_in(sample, TAKEN) && sample->context);
  uint64_t now = vgpu_monotonic();
  sample->idle = sample->passed ? now - sample->recorded : 0;
  if (sample->passed) sample->started = now;
}

bool vgpu_sample_end(struct vgpu_sample *sample, struct vgpu_stream stream) {
  bool slow = vgpu_monotonic() - sample->begun > TORN_NS, blocked = slow && vgpu_launches_block(vgpu_stream_done(stream));
  bool recorded = vgpu_record_event(sample->end, stream) == CUDA_SUCCESS;
  uint64_t took = vgpu_monotonic() - sample->begun;
  sample->is_spaced = recorded && vgpu_event_cost_due(sample->entry) && vgpu_record_event(sample->after, stream) == CUDA_SUCCESS;
  sample->torn = took > TORN_NS && !blocked && vgpu_event_passed(sample->begin);
  sample->delay = sample->torn ? took - sample->idle : 0;
  if (sample->torn) sample->started = sample->begun + took;
  return recorded;
}

void vgpu_sample_keep(struct vgpu_sample *sample) {
  VGPU_ASSERT(is_in(sample, TAKEN));
  count_waiting(1);
  put(sample, WAITING);
}

void vgpu_sample_drop(struct vgpu_sample *sample) {
  VGPU_ASSERT(is_in(sample, TAKEN));
  put(sample, FREE);
}

static struct vgpu_event_span span_of(const struct vgpu_sample *sample) {
  return (struct vgpu_event_span){sample->begin, sample->end, sample->follows ? sample->before : NULL,
                                  sample->is_spaced ? sample->after : NULL, sample->idle};
}

/* Make a sample's context current. False: it ended, and no hook saw that. */
static bool enter_context(const struct vgpu_sample *sample) {
  CUcontext current = NULL;
  REAL(cuCtxGetCurrent)(&current);
  return current == sample->context || REAL(cuCtxSetCurrent)(sample->context) == CUDA_SUCCESS;
}

static void finish(struct vgpu_sample *sample, uint64_t ns, const struct vgpu_sample_reader *reader) {
  __atomic_store_n(&last_end[sample->entry], vgpu_monotonic(), __ATOMIC_RELAXED);
  reader->ended(sample, ns);
  count_waiting(-1);
  put(sample, FREE);
}

/* The nanoseconds for which a device has performed a sample: since it was seen to begin, and the last one to end. */
static uint64_t runs_for(const struct vgpu_sample *sample, uint64_t now) {
  uint64_t since = __atomic_load_n(&last_end[sample->entry], __ATOMIC_RELAXED);
  if (since < sample->started) since = sample->started;
  return sample->started && now > since ? now - since : 0;
}

/* Use the events of a context no more. Launches that wait took at least as long as they were seen to run, and those
 * of unknown kinds at least `ns` nanoseconds. */
static void forget(CUcontext context, uint64_t ns, const struct vgpu_sample_reader *reader) {
  for (unsigned i = 0; i < COUNT; i++) {
    struct vgpu_sample *sample = &samples[i];
    CUcontext has = __atomic_load_n(&sample->context, __ATOMIC_RELAXED);
    if (!has || (context && has != context)) continue;
    bool waits = try_take(sample, WAITING);
    if (!waits && !try_take(sample, FREE)) continue;
    set_context(sample, NULL);
    uint64_t ran = waits ? runs_for(sample, vgpu_monotonic()) : 0;
    if (waits) finish(sample, ran ? ran : sample->first ? ns : 0, reader);
    else put(sample, FREE);
  }
}

/* Read one waiting sample. True: it has ended. */
static bool read_one(struct vgpu_sample *sample, const struct vgpu_sample_reader *reader) {
  VGPU_ASSERT(is_in(sample, WAITING) && vgpu_rank_held(VGPU_RANK_SAMPLES));
  if (!enter_context(sample)) {
    forget(sample->context, 0, reader);
    return true;
  }
  struct vgpu_event_span span = span_of(sample);
  CUresult result = REAL(cuEventQuery)(span.after ? span.after : span.end);
  if (result == CUDA_ERROR_NOT_READY) {
    if (!sample->started && REAL(cuEventQuery)(sample->begin) == CUDA_SUCCESS) sample->started = vgpu_monotonic();
    return false;
  }
  uint64_t ns = result == CUDA_SUCCESS ? vgpu_event_busy_ns(&span, sample->entry) : 0;
  if (vgpu_context_gone(result)) set_context(sample, NULL); /* its address is a new context's */
  finish(sample, ns, reader);
  return true;
}

/* Read the waiting samples of a context, NULL for all, while the driver's state of this thread is set aside,
 * because the thread may be the program's. Returns the number of those that wait on. */
static unsigned read_of(CUcontext context, const struct vgpu_sample_reader *reader) {
  unsigned waiting = 0;
  CUcontext before = NULL, after = NULL;
  CUstreamCaptureMode mode = vgpu_exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  REAL(cuCtxGetCurrent)(&before);
  for (unsigned i = 0; i < COUNT; i++) {
    if (__atomic_load_n(&samples[i].state, __ATOMIC_ACQUIRE) != WAITING) continue;
    if (!context || samples[i].context == context) waiting += !read_one(&samples[i], reader);
  }
  REAL(cuCtxGetCurrent)(&after);
  if (after != before) REAL(cuCtxSetCurrent)(before);
  vgpu_exchange_capture_mode(mode);
  return waiting;
}

/* Of several samples that a device performs at once, in different streams, the time counts for the oldest. */
static void note_running(const struct vgpu_sample_reader *reader) {
  struct vgpu_sample *running[VGPU_DEVICES_MAX] = {NULL};
  for (unsigned i = 0; i < COUNT; i++) {
    if (__atomic_load_n(&samples[i].state, __ATOMIC_ACQUIRE) != WAITING || !samples[i].started) continue;
    struct vgpu_sample **first = &running[samples[i].entry];
    if (!*first || samples[i].started < (*first)->started) *first = &samples[i];
  }
  uint64_t now = vgpu_monotonic();
  for (int i = 0; i < VGPU_DEVICES_MAX; i++)
    if (running[i]) reader->runs(running[i], runs_for(running[i], now));
}

static void note_oldest(void) {
  uint64_t first[VGPU_DEVICES_MAX] = {0};
  for (unsigned i = 0; i < COUNT; i++) {
    if (__atomic_load_n(&samples[i].state, __ATOMIC_ACQUIRE) != WAITING) continue;
    uint64_t *least = &first[samples[i].entry];
    if (!*least || samples[i].begun < *least) *least = samples[i].begun;
  }
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) __atomic_store_n(&oldest[i], first[i], __ATOMIC_RELAXED);
}

static unsigned read_all(const struct vgpu_sample_reader *reader) {
  unsigned waiting = read_of(NULL, reader);
  note_oldest();
  if (waiting) note_running(reader);
  return waiting;
}

unsigned vgpu_samples_read(const struct vgpu_sample_reader *reader) {
  lock_reading();
  unsigned waiting = read_all(reader);
  unlock_reading();
  return waiting;
}

void vgpu_samples_try_read(const struct vgpu_sample_reader *reader) {
  if (!vgpu_samples_wait() || pthread_mutex_trylock(&reading) != 0) return;
  vgpu_rank_take(VGPU_RANK_SAMPLES);
  read_all(reader);
  unlock_reading();
}

static bool is_running(CUcontext context) {
  for (unsigned i = 0; i < COUNT; i++) {
    bool waits = __atomic_load_n(&samples[i].state, __ATOMIC_ACQUIRE) == WAITING;
    if (waits && samples[i].started && (!context || samples[i].context == context)) return true;
  }
  return false;
}

/* Else a program could have its launches forgotten that it makes in a context of their own. */
void vgpu_samples_forget(CUcontext context, const struct vgpu_sample_reader *reader) {
  uint64_t begun = vgpu_monotonic(), passed = 0;
  lock_reading();
  while (read_of(context, reader) &&
         (passed = vgpu_monotonic() - begun) < (is_running(context) ? FORGET_RUNNING_NS : FORGET_NS)) {
    note_running(reader);
    unlock_reading(); /* an exit waits for the reading thread */
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    lock_reading();
  }
  forget(context, passed, reader);
  unlock_reading();
}

void vgpu_samples_reset(void) {
  memset(samples, 0, sizeof samples);
  memset(oldest, 0, sizeof oldest);
  memset(last_end, 0, sizeof last_end);
  waiting_now = 0;
  reading = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* A launch is charged before it is made, with what its kind was found to take, so that what is queued
 * is paid for already; when it or another of its kind has been measured, the charge is set right. A
 * launch begins while the budget is not used up, and may leave a debt, for which later ones wait.
 *
 * Most launches add their cost to a number of this process and are done. Half a millisecond of them is
 * charged to the budget of the container at once; a millisecond of a kind, or of a device, is worth a
 * measurement. */
#include "pace.h"

#include <errno.h>
#include <time.h>

#include "budget.h"
#include "page.h"

#define FLUSH_NS 500000   /* launches are charged together up to this */
#define SAMPLE_NS 1000000 /* of a device, and of each kind: as much work is between two samples */
#define ALIKE_MAX 128     /* launches of a kind: more may not go by what one of them has taken */
#define SLICE_NS 2000000  /* a wait looks this often whether the limit has changed */
#define READING_NS 500000 /* and so often whether work has ended */
#define UNKNOWN_MAX 4     /* kinds that may run before one of them is measured */

/* A device's time that one launch pays off at most; what is owed beyond is carried over, so that a
 * program with a large debt goes on, slowly. And what one launch waits at most for others to end: they
 * may be waiting for it. */
#define PAID_NS 100000000ULL
#define QUEUED_NS 100000000ULL

static const uint64_t unread;
const uint64_t *vgpu_changes = &unread;
uint64_t vgpu_timeless;

/* At the first launch on a device, and at the first one after each change: whether it has a limit. */
static __attribute__((noinline)) bool look(int entry) {
  static uint64_t seen;
  const uint64_t *changes = vgpu_limits_changes();
  uint64_t now = __atomic_load_n(changes, __ATOMIC_ACQUIRE);
  bool limited = vgpu_cores(entry) < 100;
  __atomic_store_n(&vgpu_changes, changes, __ATOMIC_RELAXED);
  if (limited) __atomic_store_n(&vgpu_works[entry].limited, now + 1, __ATOMIC_RELAXED);
  bool first = __atomic_exchange_n(&seen, now + 1, __ATOMIC_RELAXED) != now + 1;
  if (!limited && first && vgpu_limits_timeless()) __atomic_store_n(&vgpu_timeless, now + 1, __ATOMIC_RELAXED);
  return limited;
}

static inline bool limited(int entry) {
  if (entry < 0 || entry >= VGPU_DEVICES_MAX) return false;
  const uint64_t *changes = __atomic_load_n(&vgpu_changes, __ATOMIC_RELAXED);
  uint64_t now = __atomic_load_n(changes, __ATOMIC_RELAXED) + 1;
  return __builtin_expect(__atomic_load_n(&vgpu_works[entry].limited, __ATOMIC_RELAXED) == now, 1) || look(entry);
}

static int64_t add(int64_t *to, int64_t value) { return __atomic_add_fetch(to, value, __ATOMIC_RELAXED); }
static int64_t get(const int64_t *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

static void charge(int entry, int64_t ns) {
  if (!ns) return;
  add(&vgpu_works[entry].unmeasured, ns);
#ifndef BREAK_QUEUE /* for a test that must fail: work is charged when it has ended */
  vgpu_meter_charge(entry, ns);
#endif
}

/* For how long a launch has to wait now, that waits since `waited`; 0: it may begin. */
static uint64_t wait_now(int entry, unsigned share, uint64_t now, uint64_t waited) {
  const struct vgpu_mapped *mapped = vgpu_region_now();
  const struct vgpu_work *work = &vgpu_works[entry];
  if (!mapped) return 0;
  uint64_t wait = vgpu_budget_wait(&mapped->region->budget[entry], now);
  uint64_t most = PAID_NS * 100 / share;
  if (wait && waited < most) return wait < most - waited ? wait : most - waited;
#ifdef BREAK_QUEUE
  return 0;
#endif
  bool full = get(&work->queued) > vgpu_burst(share) || get(&work->unknown) >= UNKNOWN_MAX;
  return full && waited < QUEUED_NS ? READING_NS : 0;
}

static void pace(int entry) {
  uint64_t begun = vgpu_monotonic(), now = begun;
  for (;;) {
    unsigned share = vgpu_cores(entry);
    uint64_t wait = share < 100 ? wait_now(entry, share, now, now - begun) : 0;
    if (!wait) return;
    uint64_t slice = wait < SLICE_NS ? wait : SLICE_NS;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)slice}, NULL);
    now = vgpu_monotonic();
  }
}

/* Streams that can be named in any thread, and for which nothing else waits. */
static bool plain(CUstream stream) {
  return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

static struct vgpu_sample *begin_sample(const struct vgpu_launch *launch) {
  CUstream last = NULL;
  bool locked = vgpu_streams_try();
  if (locked) last = __atomic_load_n(&vgpu_works[launch->entry].last, __ATOMIC_RELAXED);
  struct vgpu_sample *sample = vgpu_sample_begin(launch->stream, last == launch->stream.handle ? NULL : last);
  if (locked) vgpu_streams_leave();
  return sample;
}

static void remember(const struct vgpu_launch *launch) {
  CUstream *last = &vgpu_works[launch->entry].last, stream = launch->stream.handle;
  if (__atomic_load_n(last, __ATOMIC_RELAXED) == stream) return;
  __atomic_store_n(last, plain(stream) ? stream : NULL, __ATOMIC_RELAXED);
}

/* Measure a launch, for itself and for those of its kind that were not measured before it. */
static void sample(struct vgpu_launch *launch, struct vgpu_cost *cost, uint64_t key, bool first) {
  struct vgpu_sample *sample = begin_sample(launch);
  if (!sample) return;
  struct vgpu_work *work = &vgpu_works[launch->entry];
  sample->entry = launch->entry;
  sample->cost = cost;
  sample->key = key;
  sample->first = first;
  sample->launches = __atomic_exchange_n(&cost->launches, 0, __ATOMIC_RELAXED) + 1;
  sample->charged = __atomic_exchange_n(&cost->charged, 0, __ATOMIC_RELAXED) + (uint64_t)launch->charged;
  sample->queued = (uint64_t)__atomic_exchange_n(&work->unmeasured, 0, __ATOMIC_RELAXED);
  add(&work->queued, (int64_t)sample->queued);
  add(&work->unknown, first);
  launch->sample = sample;
  vgpu_sample_launch(sample);
}

/* Whether enough launches of a kind have come together for one of them, or this, to be measured. */
static bool due(const struct vgpu_cost *cost, uint64_t ns) {
  return __atomic_load_n(&cost->charged, __ATOMIC_RELAXED) + ns >= SAMPLE_NS ||
         __atomic_load_n(&cost->launches, __ATOMIC_RELAXED) >= ALIKE_MAX;
}

/* Count a launch as one that the next sample of its kind stands for. Not atomic: see costs.h. */
static void stand_in(struct vgpu_cost *cost, uint64_t ns) {
  __atomic_store_n(&cost->launches, __atomic_load_n(&cost->launches, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&cost->charged, __atomic_load_n(&cost->charged, __ATOMIC_RELAXED) + ns, __ATOMIC_RELAXED);
}

/* A launch that is measured, or with which enough has come together to be charged. */
static __attribute__((noinline)) void begin_slowly(struct vgpu_launch *launch, struct vgpu_cost *cost,
                                                   uint64_t key, uint64_t known) {
  int entry = vgpu_entry_recent(true);
  if (entry != launch->entry && !limited(entry)) {
    launch->entry = -1;
    return;
  }
  launch->entry = entry;
  struct vgpu_work *work = &vgpu_works[entry];
  vgpu_meter_check();
  int64_t pending = __atomic_exchange_n(&work->pending, 0, __ATOMIC_RELAXED);
  if (vgpu_capturing(launch->stream)) {
    launch->entry = -1; /* what was pending was written down as well, most likely */
    return;
  }
  charge(launch->entry, pending);
  pace(launch->entry);
  uint64_t ns = known ? known : vgpu_cost_unknown();
  launch->charged = (int64_t)ns;
  charge(launch->entry, launch->charged);
  if (!known || get(&work->unmeasured) >= SAMPLE_NS || due(cost, ns)) sample(launch, cost, key, !known);
  if (!launch->sample) stand_in(cost, ns);
}

static void begin(struct vgpu_launch *launch, uint64_t kind) {
  uint64_t key = (kind + (uint64_t)launch->entry) * 0x9e3779b97f4a7c15ULL | 1;
  struct vgpu_cost *cost = vgpu_cost_of(key);
  uint64_t known = __atomic_load_n(&cost->ns, __ATOMIC_RELAXED);
  bool small = known && !due(cost, known);
  if (small && add(&vgpu_works[launch->entry].pending, (int64_t)known) < FLUSH_NS) {
    launch->pending = true;
    launch->charged = (int64_t)known;
    stand_in(cost, known);
    return;
  }
  if (small) add(&vgpu_works[launch->entry].pending, -(int64_t)known);
  launch->pending = false;
  launch->sample = NULL;
  int before = errno;
  begin_slowly(launch, cost, key, known);
  errno = before;
}

bool vgpu_launch_begin(struct vgpu_launch *launch, uint64_t kind, CUstream stream, bool per_thread) {
  if (!vgpu_enter()) return false;
  int entry = vgpu_entry_recent(false);
  if (!limited(entry)) {
    vgpu_leave();
    return false;
  }
  launch->stream = (struct vgpu_stream){stream, per_thread};
  launch->entry = entry;
  begin(launch, kind);
  return true;
}

/* A launch that the driver refused costs nothing. */
static void refused(const struct vgpu_launch *launch) {
  if (launch->pending) add(&vgpu_works[launch->entry].pending, -launch->charged);
  else charge(launch->entry, -launch->charged);
}

static void end_sample(struct vgpu_launch *launch, bool launched) {
  struct vgpu_sample *sample = launch->sample;
  if (!launched) {
    sample->launches--;
    sample->charged -= (uint64_t)launch->charged;
  }
  if (launched && vgpu_sample_end(sample, launch->stream)) vgpu_meter_watch(sample);
  else vgpu_meter_drop(sample);
}

CUresult vgpu_launch_end(struct vgpu_launch *launch, CUresult result) {
  if (__builtin_expect(launch->pending && result == CUDA_SUCCESS, 1)) {
    remember(launch);
    vgpu_leave();
    return result;
  }
  int before = errno;
  if (!launch->pending && launch->sample) end_sample(launch, result == CUDA_SUCCESS);
  if (launch->entry >= 0 && result == CUDA_SUCCESS) remember(launch);
  if (launch->entry >= 0 && result != CUDA_SUCCESS) refused(launch);
  vgpu_leave();
  errno = before;
  return result;
}

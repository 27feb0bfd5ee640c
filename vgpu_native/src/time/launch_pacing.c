/* A launch is charged before it is made, with the measured cost of its kind, so that queued work is
 * already paid for. A measurement of the launch, or of another of its kind, corrects the charge. A launch
 * begins while the budget is not used up, and may leave a debt, for which later ones wait.
 *
 * Most launches are paid for with an earlier one of their kind, up to half a millisecond together, and
 * only decrement a counter. Which launches are measured is chosen by chance. A launch that the driver refuses
 * is a launch without work: if it were not charged, a program could find out by it which launch is measured. */
#include "time/launch_pacing.h"

#include <errno.h>
#include <time.h>

#include "core/limits/limits_page.h"
#include "core/process_state.h"
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "time/time_budget.h"
#include "util/arithmetic.h"
#include "util/assert.h"
#include "util/cancellation.h"

#define SLICE_NS 2000000         /* a wait checks after each whether the limit has changed */
#define READING_NS 500000        /* a wait checks after each whether work has ended */
#define NEWCOMER_DELAY_NS 100000 /* a new wait starts after the waits of other processes */
#define LATE_NS 3000000          /* a sample may be read so much later than it ends */
#define UNKNOWN_MAX 4            /* launches of unknown kinds that may run before one is measured */

/* The most of a device's time that one launch pays off: its own price or the debt, at least the first value and at
 * most the second. So a debt is paid in the long run, and the rest of a larger one is carried over, so that a program
 * continues slowly, one process of the container at a time. The second value bounds the waits of programs whose
 * kernels wait for each other, because each such wait makes another kernel longer. The third one is the longest wait
 * of a launch for others to end, because they may be waiting for it. */
#define PAID_NS 100000000ULL
#define PAID_MOST_NS 1000000000ULL
#define QUEUED_NS 100000000ULL

static const uint64_t unread;
const uint64_t *vgpu_limit_changes = &unread;
uint64_t vgpu_no_time_limits;

/* Whether the number of changes has not fallen: the agent only raises it. */
static bool changes_rise(const uint64_t *changes, const uint64_t *seen) {
  uint64_t before = __atomic_load_n(seen, __ATOMIC_ACQUIRE);
  return __atomic_load_n(changes, __ATOMIC_ACQUIRE) + 1 >= before;
}

/* Read whether a device has a limit, at its first launch and at the first one after each change. */
static __attribute__((noinline)) bool reread_limits(int entry) {
  static uint64_t seen;
  const uint64_t *changes = vgpu_limits_changes();
  VGPU_ASSERT(changes_rise(changes, &seen));
  uint64_t now = __atomic_load_n(changes, __ATOMIC_ACQUIRE);
  bool limited = vgpu_cores(entry) < 100;
  __atomic_store_n(&vgpu_limit_changes, changes, __ATOMIC_RELAXED);
  if (limited) __atomic_store_n(&vgpu_device_work[entry].limited, now + 1, __ATOMIC_RELAXED);
  bool first = __atomic_exchange_n(&seen, now + 1, __ATOMIC_RELAXED) != now + 1;
  if (!limited && first && vgpu_limits_cores_unlimited())
    __atomic_store_n(&vgpu_no_time_limits, now + 1, __ATOMIC_RELAXED);
  return limited;
}

static inline bool limited(int entry) {
  if (entry < 0 || entry >= VGPU_DEVICES_MAX) return false;
  const uint64_t *changes = __atomic_load_n(&vgpu_limit_changes, __ATOMIC_RELAXED);
  uint64_t now = __atomic_load_n(changes, __ATOMIC_RELAXED) + 1;
  uint64_t limited = __atomic_load_n(&vgpu_device_work[entry].limited, __ATOMIC_RELAXED);
  return __builtin_expect(limited == now, 1) || reread_limits(entry);
}

static int64_t add(int64_t *to, int64_t value) { return __atomic_add_fetch(to, value, __ATOMIC_RELAXED); }
static int64_t get(const int64_t *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

/* The price of a launch: its own cost, and that of later launches of its kind, which are paid ahead. */
struct price {
  bool known;
  uint64_t ns, ahead;
};

static struct price price_of(const struct vgpu_cost *cost, const struct vgpu_choice *choice) {
  uint64_t known = __atomic_load_n(&cost->ns, __ATOMIC_RELAXED);
  if (!known) return (struct price){.ns = vgpu_cost_unknown()};
  uint64_t ahead = vgpu_cost_ahead(cost, known);
  return (struct price){true, known, ahead < choice->gap ? ahead : choice->gap};
}

static uint64_t all_of(const struct price *price) { return price->ns * (1 + price->ahead); }

/* The longest wait of a launch, in nanoseconds, if the debt was `owed` when it began to wait. */
static uint64_t wait_most(const struct price *price, unsigned share, uint64_t owed) {
  uint64_t paid = vgpu_greatest(all_of(price), PAID_NS) * 100 / share;
  return vgpu_least(vgpu_greatest(paid, owed), PAID_MOST_NS * 100 / share);
}

/* Whether work has not ended in the time that is charged for all queued work. Some of it takes longer than it was
 * when it was measured. */
static bool is_late(int entry, uint64_t now) {
  uint64_t oldest = vgpu_samples_oldest(entry), queued = (uint64_t)get(&vgpu_device_work[entry].queued);
  return oldest && now > oldest + queued + LATE_NS;
}

/* Whether so much work is queued that more must wait until some of it has ended. */
static bool queue_full(int entry, const struct vgpu_cost *cost, unsigned share, uint64_t now) {
  const struct vgpu_work *work = &vgpu_device_work[entry];
  return get(&work->queued) > vgpu_burst(share) || get(&work->unknown) >= UNKNOWN_MAX || vgpu_cost_full(cost) ||
         vgpu_samples_full() || is_late(entry, now);
}

/* Whether another launch of the same unknown kind is about to be measured. */
static bool known_soon(int entry, const struct vgpu_cost *cost, const struct price *price) {
  return !price->known && __atomic_load_n(&cost->paid, __ATOMIC_RELAXED) &&
         get(&vgpu_device_work[entry].unknown) > 0;
}

/* Pay for a launch that has waited for `waited` nanoseconds, and return 0; else return the time to wait
 * before the next try. */
static uint64_t pay_or_wait(int entry, const struct vgpu_cost *cost, const struct price *price, uint64_t now,
                            uint64_t waited) {
  const struct vgpu_mapped *mapped = vgpu_region_now();
  unsigned share = vgpu_cores(entry);
  if (!mapped || share >= 100) return 0;
  if (waited < QUEUED_NS && queue_full(entry, cost, share, now)) return READING_NS;
  if (waited < wait_most(price, share, 0) && known_soon(entry, cost, price)) return READING_NS;
  vgpu_budget *budget = &mapped->region->budget[entry];
  int64_t ns = (int64_t)all_of(price);
  uint64_t wait = vgpu_budget_take(budget, ns, share, now);
  if (!wait) return 0;
  uint64_t most = wait_most(price, share, waited + wait);
  if (waited < most) return wait < most - waited ? wait : most - waited;
  if (!vgpu_budget_let_on(budget, now, most)) return wait;
  vgpu_budget_charge(budget, ns, share);
  return 0;
}

static struct price pace(int entry, const struct vgpu_cost *cost, const struct vgpu_choice *choice) {
  uint64_t begun = vgpu_monotonic(), now = begun;
  for (;;) {
    struct price price = price_of(cost, choice);
    uint64_t wait = pay_or_wait(entry, cost, &price, now, now - begun);
    if (!wait) return price;
    uint64_t slice = (wait < SLICE_NS ? wait : SLICE_NS) + (now == begun ? NEWCOMER_DELAY_NS : 0);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)slice}, NULL);
    now = vgpu_monotonic();
  }
}

/* Whether a handle means the same stream in all threads, and is not one of the null streams. */
static bool is_plain(CUstream stream) {
  return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

static struct vgpu_sample *begin_sample(const struct vgpu_launch *launch) {
  struct vgpu_work *work = &vgpu_device_work[launch->entry];
  struct vgpu_sample *tail = NULL;
  CUstream last = NULL;
  bool locked = vgpu_streams_try();
  if (locked) {
    last = __atomic_load_n(&work->last, __ATOMIC_RELAXED);
    tail = work->tail;
    work->tail = NULL;
  }
  if (tail && last) { /* another launch followed the destroyed stream */
    vgpu_sample_drop(tail);
    tail = NULL;
  }
  if (last == launch->stream.handle) last = NULL;
  struct vgpu_sample *sample = vgpu_sample_begin(launch->entry, launch->stream, last, tail);
  if (locked) vgpu_streams_leave();
  return sample;
}

static void remember(const struct vgpu_launch *launch) {
  CUstream *last = &vgpu_device_work[launch->entry].last, stream = launch->stream.handle;
  if (__atomic_load_n(last, __ATOMIC_RELAXED) == stream) return;
  __atomic_store_n(last, is_plain(stream) ? stream : NULL, __ATOMIC_RELAXED);
}

/* Measure a launch that was chosen. */
static void start_sample(struct vgpu_launch *launch, uint64_t key, const struct vgpu_choice *choice,
                         const struct price *price) {
  struct vgpu_sample *sample = begin_sample(launch);
  if (!sample) return;
  struct vgpu_work *work = &vgpu_device_work[launch->entry];
  sample->cost = launch->cost;
  sample->key = key;
  sample->first = !price->known;
  sample->weight = choice->weight;
  sample->charged = price->ns;
  sample->expected = choice->ns ? choice->ns : price->ns;
  sample->queued = (uint64_t)__atomic_exchange_n(&work->unmeasured, 0, __ATOMIC_RELAXED);
  add(&work->queued, (int64_t)sample->queued);
  add(&work->unknown, !price->known);
  vgpu_cost_waits(launch->cost);
  launch->sample = sample;
  vgpu_sample_launch(sample);
}

/* Count a paid launch and those paid ahead, and measure it if it was chosen. */
static void count_paid(struct vgpu_launch *launch, uint64_t key, const struct vgpu_choice *choice,
                       const struct price *price) {
  struct vgpu_work *work = &vgpu_device_work[launch->entry];
  add(&work->unmeasured, (int64_t)price->ns);
  if (choice->weight) start_sample(launch, key, choice, price);
  uint64_t ahead = vgpu_cost_pay_ahead(launch->cost, choice, price->ahead, price->ns);
  add(&work->unmeasured, (int64_t)(ahead * price->ns));
  if (ahead < price->ahead) vgpu_meter_charge(launch->entry, -(int64_t)((price->ahead - ahead) * price->ns));
}

/* Kinds of different devices are different. */
static uint64_t key_of(uint64_t kind, int entry) {
  return (kind ^ (uint64_t)(entry + 1) << 58) * 0x9e3779b97f4a7c15ULL | 1;
}

/* Load the code of a kernel, so that its first launch does not include that. Drivers older than 12.4 load it in
 * the launch. A kernel of a library may stand for its function. */
static void load_code(CUfunction function) {
  CUfunction loaded;
  if (!function || !HAS(cuFuncLoad) || REAL(cuFuncLoad)(function) == CUDA_SUCCESS) return;
  if (HAS(cuKernelGetFunction) && REAL(cuKernelGetFunction)(&loaded, (CUkernel)function) == CUDA_SUCCESS)
    REAL(cuFuncLoad)(loaded);
}

/* Pay for a launch, after a wait if necessary. */
static void charge_launch(struct vgpu_launch *launch, uint64_t kind, CUfunction function) {
  int entry = vgpu_recent_entry(true);
  launch->entry = limited(entry) ? entry : -1;
  if (launch->entry < 0) return;
  vgpu_meter_check_fork();
  if (vgpu_is_capturing(launch->stream)) {
    launch->entry = -1;
    return;
  }
  uint64_t key = key_of(kind, entry);
  launch->cost = vgpu_cost_place(key);
  if (!__atomic_load_n(&launch->cost->paid, __ATOMIC_RELAXED)) load_code(function);
  struct vgpu_choice choice = vgpu_cost_choose(launch->cost);
  struct price price = pace(entry, launch->cost, &choice);
  count_paid(launch, key, &choice, &price);
}

static __attribute__((noinline)) bool begin_unpaid(struct vgpu_launch *launch, uint64_t kind, CUfunction function) {
  int recent = vgpu_recent_entry(false);
  if ((recent >= 0 && !limited(recent)) || !vgpu_enter()) return false;
  int before = errno;
  launch->cancel_state = vgpu_defer_cancellation();
  launch->paid = false;
  launch->sample = NULL;
  charge_launch(launch, kind, function);
  errno = before;
  if (launch->entry >= 0) return true;
  vgpu_leave();
  vgpu_restore_cancellation(launch->cancel_state);
  return false;
}

/* Whether control is off. Later launches then pass as without a limit of time. */
static bool control_off(void) {
  if (__atomic_load_n(&vgpu_process.state, __ATOMIC_RELAXED) != VGPU_OFF) return false;
  const uint64_t *changes = __atomic_load_n(&vgpu_limit_changes, __ATOMIC_RELAXED);
  uint64_t now = __atomic_load_n(changes, __ATOMIC_RELAXED);
  __atomic_store_n(&vgpu_no_time_limits, now + 1, __ATOMIC_RELAXED);
  return true;
}

bool vgpu_launch_begin(struct vgpu_launch *launch, uint64_t kind, CUfunction function, CUstream stream,
                       bool per_thread) {
  if (vgpu_inside || control_off()) return false;
  launch->stream = (struct vgpu_stream){stream, per_thread};
  launch->entry = vgpu_recent_entry(false);
  launch->cost = vgpu_cost_find(key_of(kind, launch->entry));
  /* False in the child of a fork, where the parent's paid launches do not count. */
  bool ready = __atomic_load_n(&vgpu_process.state, __ATOMIC_RELAXED) == VGPU_ON;
  launch->paid = ready && launch->cost && vgpu_cost_spend(launch->cost);
  if (__builtin_expect(!launch->paid, 0)) return begin_unpaid(launch, kind, function);
  vgpu_inside = true;
  return true;
}

static void end_sample(struct vgpu_launch *launch, bool launched) {
  struct vgpu_sample *sample = launch->sample;
  if (launched && vgpu_sample_end(sample, launch->stream)) vgpu_meter_watch(sample);
  else vgpu_meter_drop(sample, launched);
}

static __attribute__((noinline)) void end_unpaid(struct vgpu_launch *launch, bool launched) {
  int before = errno;
  if (!launch->paid && launch->sample) end_sample(launch, launched);
  if (launched) remember(launch);
  if (!launch->paid) vgpu_restore_cancellation(launch->cancel_state);
  errno = before;
}

CUresult vgpu_launch_end(struct vgpu_launch *launch, CUresult result) {
  bool launched = result == CUDA_SUCCESS;
  if (__builtin_expect(launch->paid && launched, 1)) remember(launch);
  else end_unpaid(launch, launched);
  vgpu_leave();
  return result;
}

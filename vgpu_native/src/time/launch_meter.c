/* A thread reads the samples that have ended, and corrects the charges of the launches that they
 * represent. It is started with the first sample, and sleeps while there is none. It ends when the process
 * exits, before the driver does: exit handlers run in the reverse order of their registration, and the driver
 * registers its own when it is initialised. */
#include "time/launch_meter.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "intercept/nested_calls.h"
#include "time/time_budget.h"
#include "util/assert.h"
#include "util/cancellation.h"
#include "util/futex.h"

#define PERIOD_NS 1000000
#define QUIET 20 /* periods without a sample, after which the thread sleeps until it is woken */
#define COUNTED 32 /* one of so many delayed launches counts with its delay */
#define STACK (256 * 1024)
#define END_NS 100000000 /* the exit of a process waits so long, because the thread may need a lock that the
                            exiting thread holds */

struct vgpu_work vgpu_device_work[VGPU_DEVICES_MAX];

static pid_t owner;      /* the process of the reading thread; 0: there is none */
static uint32_t watched; /* counts samples */
static uint32_t asleep;
static pthread_t reader;
static uint32_t reading; /* 1 while the thread runs */
static uint32_t ending;  /* 1: the process exits */
static pthread_mutex_t streams = PTHREAD_MUTEX_INITIALIZER;

void vgpu_meter_charge(int entry, int64_t ns) {
  const struct vgpu_mapped *mapped = vgpu_region_now();
  unsigned share = vgpu_cores(entry);
  if (mapped && share < 100) vgpu_budget_charge(&mapped->region->budget[entry], ns, share);
}

/* Charge measured time beyond the charge, or give an excess back. */
static void adjust(int entry, int64_t ns) {
  if (ns > 0) __atomic_fetch_add(&vgpu_device_work[entry].added, (uint64_t)ns, __ATOMIC_RELAXED);
  vgpu_meter_charge(entry, ns);
}

/* Count the measured time of a device. It never falls: an excess is set off against the next time. */
static void count(int entry, int64_t ns) {
  const struct vgpu_mapped *mapped = vgpu_region_now();
  int64_t *excess = &vgpu_device_work[entry].excess;
  int64_t all = __atomic_sub_fetch(excess, ns, __ATOMIC_RELAXED);
  if (!mapped || all >= 0) return;
  __atomic_fetch_sub(excess, all, __ATOMIC_RELAXED);
  __atomic_fetch_add(&mapped->region->budget[entry].spent, (uint64_t)-all, __ATOMIC_RELAXED);
  __atomic_fetch_add(&mapped->slot->busy[entry], (uint64_t)-all, __ATOMIC_RELAXED);
}

/* The time of a launch during which the process was delayed while the device had nothing to do: it loaded code, or
 * did not run. The launch took at most the measured time, and at least that without the delay; of those the time
 * that is nearest to the known cost. One in some counts in full, so that a program cannot hide its launches by
 * delays. Only one thread at a time reads samples. */
static uint64_t without_delay(const struct vgpu_sample *sample, uint64_t ns) {
  static unsigned doubts;
  if (!sample->torn || (!sample->first && ++doubts % COUNTED == 0)) return ns;
  uint64_t least = ns > sample->delay ? ns - sample->delay : 1;
  uint64_t known = sample->first ? vgpu_cost_unknown() : sample->charged;
  return known < least ? least : known < ns ? known : ns;
}

/* Whether no more was subtracted than added. */
static bool is_balanced(const struct vgpu_work *work) {
  return __atomic_load_n(&work->queued, __ATOMIC_RELAXED) >= 0 &&
         __atomic_load_n(&work->unknown, __ATOMIC_RELAXED) >= 0;
}

/* What the launches that a sample represents took more than is charged for them: each of them was charged the
 * expected price, and this one a newer price. */
static int64_t correction(const struct vgpu_sample *sample, uint64_t ns) {
  int64_t expected = (int64_t)sample->expected, each = (int64_t)ns - expected;
  return (int64_t)sample->weight * each + expected - (int64_t)sample->charged;
}

/* A device has performed a sample for `ns` nanoseconds so far. Time beyond its charge is charged at once,
 * because the process may be killed before the end. */
static void sample_runs(struct vgpu_sample *sample, uint64_t ns) {
  uint64_t charged = sample->charged + sample->advanced;
  if (ns <= charged) return;
  adjust(sample->entry, (int64_t)(ns - charged));
  sample->advanced += ns - charged;
}

/* The work up to a sample has ended, for which `more` than its charge was needed. */
static void settle(const struct vgpu_sample *sample, int64_t more) {
  VGPU_ASSERT(sample->entry >= 0 && sample->entry < VGPU_DEVICES_MAX);
  struct vgpu_work *work = &vgpu_device_work[sample->entry];
  adjust(sample->entry, more - (int64_t)sample->advanced);
  count(sample->entry, (int64_t)sample->queued + more);
  __atomic_fetch_sub(&work->queued, (int64_t)sample->queued, __ATOMIC_RELAXED);
  if (sample->first) __atomic_fetch_sub(&work->unknown, 1, __ATOMIC_RELAXED);
  vgpu_cost_waited(sample->cost, sample->key);
  VGPU_ASSERT(is_balanced(work));
}

/* Count a sample that ended after `ns` nanoseconds of work; 0: unknown, and the charge stays. */
static void sample_ended(const struct vgpu_sample *sample, uint64_t ns) {
  if (ns) {
    ns = without_delay(sample, ns);
    vgpu_cost_learn(sample->cost, sample->key, ns);
  }
  settle(sample, ns ? correction(sample, ns) : (int64_t)sample->advanced);
}

static const struct vgpu_sample_reader meter = {sample_ended, sample_runs};

/* Sleep until there is a sample that was not there when `seen` was read. */
static void sleep_until_watched(uint32_t seen) {
  __atomic_store_n(&asleep, 1, __ATOMIC_SEQ_CST);
  vgpu_futex_wait_while(&watched, seen);
  __atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
}

static bool is_ending(void) { return __atomic_load_n(&ending, __ATOMIC_SEQ_CST); }

/* Waking this thread costs a launch more than the sample itself. So the thread stays awake while a program
 * keeps launching. */
static void *read_samples(void *nothing) {
  vgpu_inside = true; /* the driver's own calls in this thread are not the program's */
  uint32_t seen = 0;
  for (unsigned quiet = 0; !is_ending();) {
    uint32_t now = __atomic_load_n(&watched, __ATOMIC_SEQ_CST);
    bool busy = vgpu_samples_read(&meter) || now != seen;
    quiet = busy ? 0 : quiet + 1;
    seen = now;
    if (quiet < QUIET) vgpu_futex_wait_at_most(&ending, 0, PERIOD_NS);
    else sleep_until_watched(seen);
  }
  vgpu_samples_read(&meter); /* of launches that ended in the last period */
  __atomic_store_n(&reading, 0, __ATOMIC_SEQ_CST);
  vgpu_futex_wake(&reading);
  return nothing;
}

/* A child of a fork has no such thread. */
static void end_at_exit(void) {
  if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) != getpid()) return;
  __atomic_store_n(&ending, 1, __ATOMIC_SEQ_CST);
  vgpu_futex_wake(&ending);
  __atomic_fetch_add(&watched, 1, __ATOMIC_SEQ_CST);
  vgpu_futex_wake(&watched);
  if (!pthread_equal(reader, pthread_self())) vgpu_futex_wait_at_most(&reading, 1, END_NS);
}

/* The thread blocks all signals, which are for the program's threads. Without an exit handler it would call
 * a driver that has ended. */
static bool start(void) {
  static bool registered;
  if (is_ending()) return false;
  pthread_attr_t attributes;
  sigset_t all, before;
  if (!registered && atexit(end_at_exit)) return false;
  registered = true;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  __atomic_store_n(&reading, 1, __ATOMIC_SEQ_CST);
  pthread_attr_setstacksize(&attributes, STACK);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&reader, &attributes, read_samples, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (started) pthread_detach(reader);
  else __atomic_store_n(&reading, 0, __ATOMIC_SEQ_CST);
  return started;
}

void vgpu_meter_drop(struct vgpu_sample *sample, bool launched) {
  settle(sample, launched ? 0 : correction(sample, 0));
  vgpu_sample_drop(sample);
}

void vgpu_meter_watch(struct vgpu_sample *sample) {
  vgpu_sample_keep(sample);
  pid_t none = 0;
  if (!__atomic_load_n(&owner, __ATOMIC_ACQUIRE) &&
      __atomic_compare_exchange_n(&owner, &none, getpid(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    if (!start()) __atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
  }
  if (!__atomic_load_n(&owner, __ATOMIC_ACQUIRE)) {
    /* Without a thread: read now, and at each later sample. */
    vgpu_samples_read(&meter);
    return;
  }
  if (is_ending()) { /* an exit handler launches, and the thread may have ended */
    vgpu_samples_try_read(&meter);
    return;
  }
  __atomic_fetch_add(&watched, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) vgpu_futex_wake(&watched);
}

void vgpu_meter_read(void) {
  pid_t process = __atomic_load_n(&owner, __ATOMIC_ACQUIRE);
  if (process && process != getpid()) return; /* the samples are those of the process that forked */
  int before = errno, cancel_state = vgpu_defer_cancellation();
  vgpu_samples_try_read(&meter);
  vgpu_restore_cancellation(cancel_state);
  errno = before;
}

void vgpu_meter_check_fork(void) {
  pid_t was = __atomic_load_n(&owner, __ATOMIC_ACQUIRE);
  if (!was || was == getpid()) return;
  vgpu_samples_reset();
  vgpu_costs_reset_prepaid();
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) vgpu_device_work[i] = (struct vgpu_work){0};
  asleep = reading = ending = 0;
  streams = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  __atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
}

bool vgpu_streams_try(void) {
  if (pthread_mutex_trylock(&streams) != 0) return false;
  vgpu_rank_take(VGPU_RANK_STREAMS);
  return true;
}

void vgpu_streams_leave(void) {
  vgpu_rank_leave(VGPU_RANK_STREAMS);
  pthread_mutex_unlock(&streams);
}

/* The stream, or NULL for all, ends. A launch in another stream that follows is measured from its end on. */
static void forget_last(struct vgpu_work *work, CUstream stream) {
  CUstream last = __atomic_load_n(&work->last, __ATOMIC_RELAXED);
  if (stream && last == stream) work->tail = vgpu_sample_end_stream(stream, work->tail);
  if (!stream && work->tail) {
    vgpu_sample_drop(work->tail);
    work->tail = NULL;
  }
  if (last && (!stream || stream == last)) __atomic_store_n(&work->last, NULL, __ATOMIC_RELAXED);
}

void vgpu_meter_forget_stream(CUstream stream) {
  vgpu_meter_check_fork();
  vgpu_rank_take(VGPU_RANK_STREAMS);
  pthread_mutex_lock(&streams);
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) forget_last(&vgpu_device_work[i], stream);
  vgpu_streams_leave();
}

void vgpu_meter_forget_context(CUcontext context) {
  vgpu_meter_forget_stream(NULL);
  vgpu_samples_forget(context, &meter);
}

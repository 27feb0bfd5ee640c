/* A thread reads the samples that have ended, and corrects the charges of the launches that they
 * represent. It is started with the first sample, and sleeps while there is none. */
#include "time/launch_meter.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "intercept/nested_calls.h"
#include "time/time_budget.h"
#include "util/assert.h"
#include "util/futex.h"

#define PERIOD_NS 1000000
#define QUIET 20 /* periods without a sample, after which the thread sleeps until it is woken */
#define DOUBTS_MAX 7 /* samples in a row that are ignored */
#define STACK (256 * 1024)

struct vgpu_work vgpu_device_work[VGPU_DEVICES_MAX];

static pid_t owner;      /* the process of the reading thread; 0: there is none */
static uint32_t watched; /* counts samples */
static uint32_t asleep;
static pthread_mutex_t streams = PTHREAD_MUTEX_INITIALIZER;

void vgpu_meter_charge(int entry, int64_t ns) {
  const struct vgpu_mapped *mapped = vgpu_region_now();
  unsigned share = vgpu_cores(entry);
  if (mapped && share < 100) vgpu_budget_charge(&mapped->region->budget[entry], ns, share);
}

static void count(int entry, uint64_t ns) {
  const struct vgpu_mapped *mapped = vgpu_region_now();
  if (!mapped) return;
  __atomic_fetch_add(&mapped->region->budget[entry].spent, ns, __ATOMIC_RELAXED);
  __atomic_fetch_add(&mapped->slot->busy[entry], ns, __ATOMIC_RELAXED);
}

/* Whether to ignore a sample that may include work of others. The known cost of its kind is better, but
 * not for ever. Only the thread that reads samples calls this. */
static bool is_doubtful(const struct vgpu_sample *sample) {
  static unsigned doubts;
  doubts = sample->torn && !sample->first && doubts < DOUBTS_MAX ? doubts + 1 : 0;
  return doubts;
}

/* Whether no more was subtracted than added. */
static bool is_balanced(const struct vgpu_work *work) {
  return __atomic_load_n(&work->queued, __ATOMIC_RELAXED) >= 0 &&
         __atomic_load_n(&work->unknown, __ATOMIC_RELAXED) >= 0;
}

/* Count a sample that ended after `ns` nanoseconds of work; 0: unknown, and the charge stays. */
static void sample_ended(const struct vgpu_sample *sample, uint64_t ns) {
  VGPU_ASSERT(sample->entry >= 0 && sample->entry < VGPU_DEVICES_MAX);
  struct vgpu_work *work = &vgpu_device_work[sample->entry];
  uint64_t took = sample->charged;
  if (ns && !is_doubtful(sample)) {
    vgpu_cost_learn(sample->cost, sample->key, ns);
    took = ns * sample->launches;
  }
  vgpu_meter_charge(sample->entry, (int64_t)(took - sample->charged));
  count(sample->entry, took);
  __atomic_fetch_sub(&work->queued, (int64_t)sample->queued, __ATOMIC_RELAXED);
  if (sample->first) __atomic_fetch_sub(&work->unknown, 1, __ATOMIC_RELAXED);
  VGPU_ASSERT(is_balanced(work));
}

/* Sleep until there is a sample that was not there when `seen` was read. */
static void sleep_until_watched(uint32_t seen) {
  __atomic_store_n(&asleep, 1, __ATOMIC_SEQ_CST);
  vgpu_futex_wait_while(&watched, seen);
  __atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
}

/* Waking this thread costs a launch more than the sample itself. So the thread stays awake while a program
 * keeps launching. */
static void *read_samples(void *nothing) {
  vgpu_inside = true; /* the driver's own calls in this thread are not the program's */
  uint32_t seen = 0;
  for (unsigned quiet = 0;;) {
    uint32_t now = __atomic_load_n(&watched, __ATOMIC_SEQ_CST);
    bool busy = vgpu_samples_read(sample_ended) || now != seen;
    quiet = busy ? 0 : quiet + 1;
    seen = now;
    if (quiet < QUIET) clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = PERIOD_NS}, NULL);
    else sleep_until_watched(seen);
  }
  return nothing;
}

/* The thread blocks all signals, which are for the program's threads. */
static bool start(void) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&thread, &attributes, read_samples, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (started) pthread_detach(thread);
  return started;
}

void vgpu_meter_drop(struct vgpu_sample *sample) {
  sample_ended(sample, 0);
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
    vgpu_samples_read(sample_ended); /* without a thread: read now, and at each later sample */
    return;
  }
  __atomic_fetch_add(&watched, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) vgpu_futex_wake(&watched);
}

void vgpu_meter_check_fork(void) {
  pid_t was = __atomic_load_n(&owner, __ATOMIC_ACQUIRE);
  if (!was || was == getpid()) return;
  vgpu_samples_reset();
  vgpu_costs_reset_prepaid();
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) vgpu_device_work[i] = (struct vgpu_work){0};
  asleep = 0;
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

void vgpu_meter_forget_stream(CUstream stream) {
  vgpu_meter_check_fork();
  vgpu_rank_take(VGPU_RANK_STREAMS);
  pthread_mutex_lock(&streams);
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    CUstream last = __atomic_load_n(&vgpu_device_work[i].last, __ATOMIC_RELAXED);
    if (last && (!stream || stream == last))
      __atomic_store_n(&vgpu_device_work[i].last, NULL, __ATOMIC_RELAXED);
  }
  vgpu_streams_leave();
}

void vgpu_meter_forget_context(CUcontext context) {
  vgpu_meter_forget_stream(NULL);
  vgpu_samples_forget(context, sample_ended);
}

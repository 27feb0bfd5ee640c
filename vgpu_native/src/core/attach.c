/* Attaching to the region: at the first call of the driver, and at the first one after a fork. While an
 * error that passes prevents that, the process gets no memory, and later calls try again. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/device_entries.h"
#include "core/limits/limits_page.h"
#include "core/process_slots.h"
#include "core/process_state.h"
#include "core/region_file.h"
#include "util/assert.h"
#include "util/clock.h"
#include "util/fork_handlers.h"
#include "util/futex.h"
#include "util/passing_errors.h"
#include "vgpu.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { TRIES_MAX = 8, RETRY_DOUBLINGS = 10 };
#define RETRY_MIN_NS 1000000ULL /* the pause after the first try; the last pause is a second */

static struct vgpu_process *const own = &vgpu_process;

static void clear_after_fork(void) { memset(own, 0, sizeof *own); }

/* Kernels before 4.14 cannot wipe. There a handler clears the page, for forks by the C library. */
static void wipe_on_fork(void) {
  static bool handled;
  if (!madvise(&vgpu_process, sizeof vgpu_process, MADV_WIPEONFORK) || handled) return;
  handled = vgpu_call_in_children(clear_after_fork);
}

/* Use a slot of a region. Other threads may read these words: the slot is complete before they find it. */
static void use(vgpu_region *region, vgpu_slot *slot) {
  own->owner = __atomic_load_n(&slot->owner, __ATOMIC_RELAXED);
  __atomic_store_n(&own->mapped.slot, slot, __ATOMIC_RELEASE);
  __atomic_store_n(&own->mapped.region, region, __ATOMIC_RELEASE);
}

static void set_denied(bool denied) { __atomic_store_n(&own->deny_memory, denied, __ATOMIC_RELEASE); }

/* Move what was charged without a slot. */
static void move_charges(void) {
  const struct vgpu_mapped *mapped = &own->mapped;
  for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
    uint64_t bytes = __atomic_exchange_n(&own->unslotted_bytes[i], 0, __ATOMIC_SEQ_CST);
    if (bytes) __atomic_fetch_add(&mapped->region->used[i].slot[mapped->slot - mapped->region->slot], bytes,
                                  __ATOMIC_SEQ_CST);
  }
}

/* Without a shared region a process has a region of its own, and is limited by that alone. Under a
 * binding limits page it gets no memory, because any number of such processes would each have the whole
 * limit. */
static bool attach_private(void) {
  vgpu_region *region = vgpu_region_private();
  if (!region) return false;
  region->slot[0].owner = 1;
  region->high = 1;
  use(region, &region->slot[0]);
  set_denied(vgpu_limits_binding());
  return true;
}

/* Refuse all memory until the next try. */
static enum vgpu_state attach_later(void) {
  static vgpu_slot unowned;
  set_denied(true);
  use(own->mapped.region, &unowned);
  uint64_t delay = RETRY_MIN_NS << (own->tries < RETRY_DOUBLINGS ? own->tries : RETRY_DOUBLINGS);
  own->tries++;
  __atomic_store_n(&own->next_try, vgpu_monotonic() + delay, __ATOMIC_RELAXED);
  return VGPU_LATER;
}

/* Whether a failed step is tried again. Without a binding page the process is limited by itself after some
 * tries, as it is after errors that do not pass. */
static bool is_retried(int error) {
  return vgpu_passes(error) && (vgpu_limits_binding() || own->tries < TRIES_MAX);
}

/* Log why the region cannot be used. Returns whether it is tried again. */
static bool failed(const char *format, const char *path, const char *remedy) {
  int error = errno;
  bool retried = is_retried(error);
  char text[PATH_MAX + 64];
  snprintf(text, sizeof text, format, path);
  if (!retried) vgpu_log(VGPU_ERROR, "%s: %s; %s. %s", text, strerror(error), vgpu_region_fallback(), remedy);
  else if (!own->tries)
    vgpu_log(VGPU_ERROR, "%s: %s; no memory is given until it can. %s", text, strerror(error), vgpu_remedy(error));
  return retried;
}

enum outcome { DONE, RETRIED, ALONE };

static enum outcome open_region(const char *path) {
  if (own->mapped.region) return DONE;
  vgpu_region *region = vgpu_region_open(path);
  if (region) {
    vgpu_entries_reclaim(region);
    __atomic_store_n(&own->mapped.region, region, __ATOMIC_RELEASE);
    return DONE;
  }
  return errno && failed("%s cannot be used as region", path, "Make it writable") ? RETRIED : ALONE;
}

/* When 256 processes live already, no slot is left to charge this process's memory to, so it gets no memory
 * until one of them ends. */
static enum outcome own_slot(const char *path) {
  vgpu_region *region = own->mapped.region;
  vgpu_slot *slot = vgpu_slot_own(region);
  if (slot) return use(region, slot), DONE;
  if (errno == ENOSPC) {
    if (!own->tries)
      vgpu_log(VGPU_ERROR, "%d processes use %s; this one is given no memory until one of them ends. End one",
               VGPU_SLOTS_MAX, path);
    return RETRIED;
  }
  if (failed("no thread to own a slot of %s", path, "Permit threads and robust futexes")) return RETRIED;
  own->mapped.region = NULL;
  munmap(region, sizeof *region);
  return ALONE;
}

static enum outcome attach_shared(void) {
  char path[PATH_MAX];
  vgpu_region_path(path, sizeof path);
  enum outcome opened = open_region(path);
  return opened == DONE ? own_slot(path) : opened;
}

/* Whether the slot is one of the region's, or the process is denied memory. */
static bool has_slot_or_is_denied(void) {
  const struct vgpu_mapped *mapped = &own->mapped;
  if (own->deny_memory) return mapped->slot != NULL;
  return mapped->region && mapped->slot >= mapped->region->slot &&
         mapped->slot < mapped->region->slot + VGPU_SLOTS_MAX && vgpu_slot_lives(mapped->slot);
}

static bool uses_nothing(void) {
  uint64_t any = 0;
  for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) any |= own->unslotted_bytes[i];
  return !any;
}

/* Whether nothing is left of an earlier process, if this is the first try. */
static bool is_fresh(void) {
  return own->tries || (!own->mapped.region && !own->mapped.slot && !own->owner && !own->deny_memory);
}

static enum vgpu_state attach(void) {
  VGPU_ASSERT(is_fresh());
  VGPU_ASSERT_EXPENSIVE(own->tries || uses_nothing());
  if (!vgpu_limits_open(!own->tries)) return attach_later();
  if (vgpu_limits_disabled()) return VGPU_OFF;
  enum outcome outcome = attach_shared();
  if (outcome == RETRIED) return attach_later();
  if (outcome == ALONE && !attach_private()) return attach_later();
  if (outcome == DONE) set_denied(false);
  if (!own->deny_memory) move_charges();
  return VGPU_ON;
}

/* One thread attaches and the others wait. Signals are blocked, because a handler could call the driver
 * and wait for its own thread; cancellation is blocked, too. */
static bool attach_once(void) {
  wipe_on_fork(); /* before there is state that a child must not have */
  sigset_t all, before;
  int kept = errno, cancel;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
  uint32_t state = __atomic_load_n(&own->state, __ATOMIC_ACQUIRE);
  if ((state == VGPU_NEW || state == VGPU_LATER) &&
      __atomic_compare_exchange_n(&own->state, &state, VGPU_ATTACHING, false, __ATOMIC_ACQUIRE,
                                  __ATOMIC_ACQUIRE)) {
    state = attach();
    VGPU_ASSERT(state == VGPU_OFF || has_slot_or_is_denied());
    __atomic_store_n(&own->state, state, __ATOMIC_RELEASE);
    vgpu_futex_wake(&own->state);
  } else {
    vgpu_futex_wait_while(&own->state, VGPU_ATTACHING);
  }
  pthread_setcancelstate(cancel, &cancel);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = kept;
  return __atomic_load_n(&own->state, __ATOMIC_ACQUIRE) != VGPU_OFF;
}

/* A process that attaches later is ready meanwhile: its memory is refused. */
static __attribute__((noinline)) bool ready_after(uint32_t state) {
  if (state == VGPU_OFF) return false;
  if (state == VGPU_LATER && vgpu_monotonic() < __atomic_load_n(&own->next_try, __ATOMIC_RELAXED)) return true;
  return attach_once();
}

bool vgpu_ready(void) {
  uint32_t state = __atomic_load_n(&own->state, __ATOMIC_ACQUIRE);
  return __builtin_expect(state == VGPU_ON, 1) || ready_after(state);
}

const struct vgpu_mapped *vgpu_region_now(void) {
  return vgpu_ready() && __atomic_load_n(&own->mapped.region, __ATOMIC_ACQUIRE) ? &own->mapped : NULL;
}

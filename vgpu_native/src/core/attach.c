/* Attaching to the region: at the first call of the driver, and at the first one after a fork. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/device_entries.h"
#include "core/limits/limits_page.h"
#include "core/process_state.h"
#include "core/region_file.h"
#include "core/process_slots.h"
#include "util/assert.h"
#include "util/fork_handlers.h"
#include "util/futex.h"
#include "vgpu.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static struct vgpu_process *const own = &vgpu_process;

static void clear_after_fork(void) { memset(own, 0, sizeof *own); }

/* Kernels before 4.14 cannot wipe. There a handler clears the page, for forks by the C library. */
static void wipe_on_fork(void) {
  static bool handled;
  if (!madvise(&vgpu_process, sizeof vgpu_process, MADV_WIPEONFORK) || handled) return;
  handled = vgpu_call_in_children(clear_after_fork);
}

/* Without a shared region a process has a region of its own, and is limited by that alone. Under a
 * binding limits page it gets no memory, because any number of such processes would each have the whole
 * limit. */
static bool attach_private(void) {
  vgpu_region *region = vgpu_region_private();
  if (!region) return false;
  own->deny_memory = vgpu_limits_binding();
  region->slot[0].owner = 1;
  region->high = 1;
  own->mapped = (struct vgpu_mapped){region, &region->slot[0]};
  return true;
}

/* When 256 processes live already, no slot is left to charge this process's memory to, so it gets no
 * memory. */
static vgpu_slot *without_slot(void) {
  static vgpu_slot unowned;
  unowned = (vgpu_slot){.owner = 0};
  own->deny_memory = true;
  return &unowned;
}

static bool attach_shared(void) {
  char path[PATH_MAX];
  vgpu_region_path(path, sizeof path);
  vgpu_region *region = vgpu_region_open(path);
  if (!region) return false;
  vgpu_slot *slot = vgpu_slot_own(region);
  if (!slot && errno == ENOSPC) {
    vgpu_log(VGPU_ERROR,
             "%d processes use %s; this one is given no memory. End one, and start this one again",
             VGPU_SLOTS_MAX, path);
    slot = without_slot();
  }
  if (slot) own->mapped = (struct vgpu_mapped){region, slot};
  else {
    vgpu_log(VGPU_ERROR, "no thread to own a slot of %s: %s; %s", path, strerror(errno),
             vgpu_region_fallback());
    munmap(region, sizeof *region);
  }
  return slot;
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

static enum vgpu_state attach(void) {
  VGPU_ASSERT(!own->mapped.region && !own->mapped.slot && !own->owner && !own->deny_memory);
  VGPU_ASSERT_EXPENSIVE(uses_nothing());
  vgpu_limits_open();
  if (vgpu_limits_disabled()) return VGPU_OFF;
  if (!attach_shared() && !attach_private()) own->mapped = (struct vgpu_mapped){NULL, without_slot()};
  own->owner = __atomic_load_n(&own->mapped.slot->owner, __ATOMIC_RELAXED);
  VGPU_ASSERT(has_slot_or_is_denied());
  if (own->mapped.region) vgpu_entries_reclaim(own->mapped.region);
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
  uint32_t now = VGPU_NEW;
  if (__atomic_compare_exchange_n(&own->state, &now, VGPU_ATTACHING, false, __ATOMIC_ACQUIRE,
                                  __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&own->state, attach(), __ATOMIC_RELEASE);
    vgpu_futex_wake(&own->state);
  } else {
    vgpu_futex_wait_while(&own->state, VGPU_ATTACHING);
  }
  pthread_setcancelstate(cancel, &cancel);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = kept;
  return __atomic_load_n(&own->state, __ATOMIC_ACQUIRE) == VGPU_ON;
}

bool vgpu_ready(void) {
  uint32_t now = __atomic_load_n(&own->state, __ATOMIC_ACQUIRE);
  if (__builtin_expect(now == VGPU_ON, 1)) return true;
  return now != VGPU_OFF && attach_once();
}

const struct vgpu_mapped *vgpu_region_now(void) {
  return vgpu_ready() && own->mapped.region ? &own->mapped : NULL;
}

/* A launch that is not measured may take much longer than its price. A program that then waits for it shows that. The
 * time is not charged, because the program may have waited for a copy, for the host or for another device. All kinds
 * are measured again instead. */
#include "contexts/long_waits.h"

#include "intercept/current_context.h"
#include "time/launch_pacing.h"
#include "util/clock.h"

#define LONG_NS 20000000     /* shorter waits do not matter; some ticks of the clock */
#define TIMES 8              /* so many containers may share a card in turns */
#define PAUSE_NS 1000000000U /* the launches that are paid ahead are lost only once in this time */

static uint64_t charged(const struct vgpu_work *work) {
  int64_t queued = __atomic_load_n(&work->queued, __ATOMIC_RELAXED);
  int64_t unmeasured = __atomic_load_n(&work->unmeasured, __ATOMIC_RELAXED);
  int64_t ahead = queued + unmeasured;
  return (ahead > 0 ? (uint64_t)ahead : 0) - __atomic_load_n(&work->added, __ATOMIC_RELAXED);
}

struct vgpu_wait vgpu_wait_begin(void) {
  int entry = vgpu_paced() ? vgpu_recent_entry(false) : -1;
  if (entry < 0 || entry >= VGPU_DEVICES_MAX) return (struct vgpu_wait){-1, 0, 0};
  const struct vgpu_work *work = &vgpu_device_work[entry];
  if (!__atomic_load_n(&work->limited, __ATOMIC_RELAXED)) return (struct vgpu_wait){-1, 0, 0};
  return (struct vgpu_wait){entry, vgpu_last_tick(), charged(work)};
}

void vgpu_wait_end(const struct vgpu_wait *wait) {
  static uint64_t last;
  if (wait->entry < 0) return;
  uint64_t now = vgpu_last_tick(), took = now - wait->begun;
  uint64_t known = wait->charged + __atomic_load_n(&vgpu_device_work[wait->entry].added, __ATOMIC_RELAXED);
  uint64_t before = __atomic_load_n(&last, __ATOMIC_RELAXED);
  if (took < LONG_NS || took / TIMES < known || now - before < PAUSE_NS) return;
  if (__atomic_compare_exchange_n(&last, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) vgpu_costs_relearn();
}

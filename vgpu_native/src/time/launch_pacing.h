/* Launch pacing: each launch is charged its estimated cost, and waits while the budget is used up. */
#pragma once

#include "time/launch_meter.h"

struct vgpu_launch {
  struct vgpu_stream stream;
  int entry; /* of the device; -1: it is not charged */
  bool paid; /* paid ahead, with others of its kind */
  struct vgpu_cost *cost;
  struct vgpu_sample *sample;
  int cancel_state; /* of the thread, which is not cancelled before the launch is made */
};

/* The number of changes to the limits, and one more than its value when no limit of time was set. */
extern const uint64_t *vgpu_limit_changes;
extern uint64_t vgpu_no_time_limits;

/* Whether a device may have a limit of time: the only check of a launch without one. */
static inline bool vgpu_paced(void) {
  const uint64_t *changes = __atomic_load_n(&vgpu_limit_changes, __ATOMIC_RELAXED);
  uint64_t now = __atomic_load_n(changes, __ATOMIC_RELAXED) + 1;
  return now != __atomic_load_n(&vgpu_no_time_limits, __ATOMIC_RELAXED);
}

/* Before a launch of a kind, of a function or NULL. False: it needs no pacing, and vgpu_launch_end must not be
 * called. */
bool vgpu_launch_begin(struct vgpu_launch *launch, uint64_t kind, CUfunction function, CUstream stream,
                       bool per_thread);

/* After it; returns its result. */
CUresult vgpu_launch_end(struct vgpu_launch *launch, CUresult result);

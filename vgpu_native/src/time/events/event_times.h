/* The time between events, without the time that the events themselves take. */
#pragma once

#include "driver.h"

/* The events around a launch. */
struct vgpu_event_span {
  CUevent begin, end;
  CUevent before; /* the end of a launch in another stream; NULL: none */
  CUevent after;  /* recorded right after `end`; NULL: not recorded */
  uint64_t idle;  /* nanoseconds between the first event and the launch when the device was idle */
};

/* Whether the next launch on a device should have the event `after`, by which the time of events is measured. */
bool vgpu_event_cost_due(int entry);

/* The nanoseconds for which an ended launch kept a device busy, 0 if unknown. If it overlapped a launch in another
 * stream, only the time after the end of that one counts, so that each moment counts for one launch. */
uint64_t vgpu_event_busy_ns(const struct vgpu_event_span *span, int entry);

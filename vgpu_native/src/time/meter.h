/* The meter: what launches are charged with, and what they are found to have taken. */
#pragma once

#include "layout.h"
#include "time/samples.h"

/* What this process does on one device. */
struct vgpu_work {
  int64_t unmeasured; /* charged since the last sample */
  int64_t queued;    /* charged, and not yet known to have ended */
  int64_t unknown;   /* samples of kinds that nothing is known of */
  uint64_t limited;  /* one more than the number of changes to the limits when it had one */
  CUstream last;     /* of the last launch, NULL: none that may be used */
} __attribute__((aligned(64)));

extern struct vgpu_work vgpu_device_work[VGPU_DEVICES_MAX];

/* Charge a device's budget, as far as it has a limit. */
void vgpu_meter_charge(int entry, int64_t ns);

/* The launch of a sample is made: have the sample read when it has ended, or be done with it. */
void vgpu_meter_watch(struct vgpu_sample *sample);
void vgpu_meter_drop(struct vgpu_sample *sample);

/* Called from time to time: in the child of a fork everything begins anew. */
void vgpu_meter_check_fork(void);

/* The stream of the last launch on a device is used under this lock, and not after its end. False:
 * another thread has it. */
bool vgpu_streams_try(void);
void vgpu_streams_leave(void);

/* Before a stream is destroyed; NULL: all of them. */
void vgpu_meter_forget_stream(CUstream stream);

/* Before a context is destroyed or reset; NULL: all of them. */
void vgpu_meter_forget_context(CUcontext context);

/* The launch meter: it charges launches, and corrects the charges by measurements. */
#pragma once

#include "layout.h"
#include "time/launch_samples.h"

/* The work of this process on one device. */
struct vgpu_work {
  int64_t unmeasured; /* nanoseconds charged since the last sample */
  int64_t queued;     /* nanoseconds charged whose work may not have ended */
  int64_t unknown;    /* samples of unknown kinds */
  int64_t excess;     /* nanoseconds counted too much as measured time */
  uint64_t added;     /* nanoseconds charged by measurements, beyond the prices of launches */
  uint64_t limited;   /* one more than the number of changes at which it had a limit */
  CUstream last;      /* of the last launch; NULL: none that can be used */
  struct vgpu_sample *tail; /* the end of that stream, if it was destroyed; NULL: unknown */
} __attribute__((aligned(64)));

extern struct vgpu_work vgpu_device_work[VGPU_DEVICES_MAX];

/* Charge a device's budget, if it has a limit. */
void vgpu_meter_charge(int entry, int64_t ns);

/* After the launch of a sample: have the sample read when it ends, or drop it. A launch that the driver refused
 * took no time. */
void vgpu_meter_watch(struct vgpu_sample *sample);
void vgpu_meter_drop(struct vgpu_sample *sample, bool launched);

/* Read the samples that have ended, if there are any. Call it after a synchronisation, so that a process that ends
 * then has been charged. */
void vgpu_meter_read(void);

/* Reset the meter in the child of a fork. Call it from time to time. */
void vgpu_meter_check_fork(void);

/* Take the lock under which the stream of a device's last launch is used, so that it is not used after
 * its end. False: another thread has the lock. */
bool vgpu_streams_try(void);
void vgpu_streams_leave(void);

/* Call it before a stream is destroyed; NULL: before all are. */
void vgpu_meter_forget_stream(CUstream stream);

/* Call it before a context is destroyed or reset; NULL: before all are. */
void vgpu_meter_forget_context(CUcontext context);

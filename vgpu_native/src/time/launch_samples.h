/* Launch samples: two events of the driver around each, read when the second has passed. */
#pragma once

#include "driver.h"

#include "time/events/stream_events.h"
#include "time/kernel_costs.h"

struct vgpu_sample;

/* The functions that a reading of samples calls: `ended` when one has ended, with its nanoseconds, 0 if unknown, and
 * `runs` for the one of each device that the device performs, with the nanoseconds so far. */
struct vgpu_sample_reader {
  void (*ended)(const struct vgpu_sample *sample, uint64_t ns);
  void (*runs)(struct vgpu_sample *sample, uint64_t ns);
};

struct vgpu_sample {
  uint32_t state;
  CUcontext context; /* of the events; NULL: there are none */
  CUevent begin, end, before, after;
  bool follows;    /* the last launch was in another stream, and ended with `before` */
  bool is_spaced;  /* `after` follows `end` */
  bool passed;     /* the device has performed `begin` before the launch */
  bool first;      /* of an unknown kind */
  bool torn;       /* this process was delayed meanwhile, and the device had none of its work */
  int entry;
  struct vgpu_cost *cost;
  uint64_t key;
  uint64_t weight;   /* launches of its kind that it represents */
  uint64_t expected; /* nanoseconds, the price of a launch when this one was chosen */
  uint64_t charged;  /* nanoseconds charged for this launch */
  uint64_t queued;   /* nanoseconds charged for all work that ends before it */
  uint64_t begun;    /* before the first event was recorded, in nanoseconds of the clock */
  uint64_t recorded; /* after that */
  uint64_t idle;     /* nanoseconds between the first event and the launch when the device was idle */
  uint64_t delay;    /* nanoseconds for which a torn launch kept the device waiting, at most */
  uint64_t started;  /* when the device was first seen to perform it; 0: not yet */
  uint64_t advanced; /* nanoseconds charged while it ran, more than before the launch */
};

/* Begin a measurement in a stream of a device, before the launch. Work in the stream of the last launch does
 * not count; `last` is NULL if that is this stream. If that stream was destroyed, `tail` has its end, and is
 * used up. Returns NULL if no measurement is possible now. */
struct vgpu_sample *vgpu_sample_begin(int entry, struct vgpu_stream stream, CUstream last, struct vgpu_sample *tail);

/* Record the end of a stream that is about to be destroyed. Returns the sample that has it, which may be an
 * earlier tail, or NULL. */
struct vgpu_sample *vgpu_sample_end_stream(CUstream stream, struct vgpu_sample *tail);

/* The time since which the oldest sample of a device waits, as of the last reading; 0: none waits. */
uint64_t vgpu_samples_oldest(int entry);

/* Whether so many samples wait that a launch should wait for some of them. */
bool vgpu_samples_full(void);

/* Whether any sample waits. */
bool vgpu_samples_wait(void);

/* Call it right before the launch. */
void vgpu_sample_launch(struct vgpu_sample *sample);

/* Call it after the launch. False: the measurement failed. Then keep the sample, to be read, or drop it;
 * after that it no longer belongs to the caller. */
bool vgpu_sample_end(struct vgpu_sample *sample, struct vgpu_stream stream);
void vgpu_sample_keep(struct vgpu_sample *sample);
void vgpu_sample_drop(struct vgpu_sample *sample);

/* Read the samples that wait. Any thread may call this. Returns the number of those that have not ended. */
unsigned vgpu_samples_read(const struct vgpu_sample_reader *reader);

/* The same, if any waits and no other thread reads them at the moment. */
void vgpu_samples_try_read(const struct vgpu_sample_reader *reader);

/* Call it before a context is destroyed or reset; its events are not used any more. NULL: all contexts. Waits
 * for launches to end, for a second at most, and for a tenth if none has begun. */
void vgpu_samples_forget(CUcontext context, const struct vgpu_sample_reader *reader);

/* Reset all samples in the child of a fork. */
void vgpu_samples_reset(void);

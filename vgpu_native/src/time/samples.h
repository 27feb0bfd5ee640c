/* Launches that are measured: between two events of the driver, and read when the second has passed. */
#pragma once

#include "driver.h"

#include "time/kernel_costs.h"

struct vgpu_sample;
typedef void vgpu_sample_ended(const struct vgpu_sample *sample, uint64_t ns);

struct vgpu_sample {
  uint32_t state;
  CUcontext context; /* of the events; NULL: there are none */
  CUevent begin, end, before;
  bool follows; /* the launch came after one in another stream, which ended with `before` */
  int entry;
  bool first; /* of a kind of which nothing was known */
  struct vgpu_cost *cost;
  uint64_t key;
  uint64_t launches; /* of its kind that it stands for, itself included */
  uint64_t charged;  /* for those */
  uint64_t queued;   /* what was charged for all that has ended when it has */
  uint64_t begun;    /* when the first event was recorded, 0: behind other work, and not yet reached */
  bool torn;         /* this process had to stop in between, and others may have launched meanwhile */
  uint64_t idle;     /* between the first event and the launch, where the device had nothing to do */
};

/* A stream as a function of the driver names it: for some NULL means the thread's own. */
struct vgpu_stream {
  CUstream handle;
  bool per_thread;
};

/* Whether launches are written down now, and run later or never. */
bool vgpu_is_capturing(struct vgpu_stream stream);

/* Begin to measure in a stream: before the launch; NULL: it cannot be measured now. What the device
 * has to do before in another stream, that of the last launch, does not count; NULL: there is none. */
struct vgpu_sample *vgpu_sample_begin(struct vgpu_stream stream, CUstream last);

/* Right before the launch. */
void vgpu_sample_launch(struct vgpu_sample *sample);

/* After the launch; false: it cannot be measured. Either way the sample is then kept, to be read, or
 * dropped, and belongs to the caller no more. */
bool vgpu_sample_end(struct vgpu_sample *sample, struct vgpu_stream stream);
void vgpu_sample_keep(struct vgpu_sample *sample);
void vgpu_sample_drop(struct vgpu_sample *sample);

/* Read what has ended, and call for each with its time, 0 where that cannot be known. Only one thread
 * does. Returns how many have not ended. */
unsigned vgpu_samples_read(vgpu_sample_ended *ended);

/* Before a context is destroyed or reset: its events are touched no more. NULL: all contexts. */
void vgpu_samples_forget(CUcontext context, vgpu_sample_ended *ended);

/* In the child of a fork, in which nothing of them is left. */
void vgpu_samples_reset(void);

/* The memory that this process takes during a call, by its own figure in NVML. */
#pragma once

#include "contexts/own_process.h"

struct vgpu_growth {
  int entry; /* -1: it is not measured */
  CUdevice device;
  uint64_t card, own, charged; /* bytes before the call: used by all; by this process; reserved by this process */
};

/* Around a call in the current context, whose device has the entry. Of simultaneous calls for a device only the first
 * is measured, and its growth includes that of the others. */
void vgpu_growth_begin(struct vgpu_growth *growth, int entry);

/* False: unknown. `grown` becomes the bytes beyond those that were reserved meanwhile. */
bool vgpu_growth_end(struct vgpu_growth *growth, int64_t *grown);

/* Take and leave the right to measure a device. */
bool vgpu_growth_claim(int entry);
void vgpu_growth_leave(int entry);

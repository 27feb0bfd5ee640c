/* The container's view of a device's memory, the same for CUDA and NVML. */
#pragma once

#include "driver.h"

struct vgpu_memory_view {
  uint64_t free, total;
};

/* The container's view of the driver's numbers. Entry -1 has no limit. */
struct vgpu_memory_view vgpu_memory_view(int entry, uint64_t free, uint64_t total);

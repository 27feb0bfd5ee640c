/* This process in NVML's list, which may name it by its pid on the host. */
#pragma once

#include "contexts/nvml_processes.h"

/* The pid by which NVML lists this process; 0: it is unknown. A child of a fork starts without one. */
unsigned vgpu_own_pid(void);

/* Find it after the creation of a context of the device, which must be the current one. `before` and `after` are the
 * lists around the creation; `first`: the process had no context there before. Call it under the lock of contexts. */
void vgpu_own_pid_find(CUdevice device, int entry, bool first, const struct vgpu_processes *before,
                       const struct vgpu_processes *after);

/* The least memory of the processes that are in `after` and not in `before`; 0: there is none. */
uint64_t vgpu_least_new(const struct vgpu_processes *before, const struct vgpu_processes *after);

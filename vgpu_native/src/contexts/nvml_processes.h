/* NVML's list of the processes that use a device, with the memory of each. */
#pragma once

#include "driver.h"

#define VGPU_PROCESSES_MAX 256

struct vgpu_processes {
  unsigned count;
  struct vgpu_process_figure {
    unsigned pid; /* of the host or of this namespace: drivers differ */
    uint64_t bytes; /* 0: unknown */
  } at[VGPU_PROCESSES_MAX];
};

/* Read the list of a device. False, and it is empty: NVML does not answer. The first call loads NVML. */
bool vgpu_processes_read(CUdevice device, struct vgpu_processes *list);

/* The bytes of a process; 0: it is not in the list, or its bytes are unknown. */
uint64_t vgpu_processes_bytes(const struct vgpu_processes *list, unsigned pid);
bool vgpu_processes_have(const struct vgpu_processes *list, unsigned pid);

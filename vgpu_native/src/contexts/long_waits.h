/* Synchronisations that take much longer than all launches before them were charged. */
#pragma once

#include <stdint.h>

struct vgpu_wait {
  int entry;        /* of the device; -1: it has no limit */
  uint64_t begun;   /* nanoseconds of the clock */
  uint64_t charged; /* nanoseconds for work that may not have ended then */
};

/* Call the first before a synchronisation, and the second after it. */
struct vgpu_wait vgpu_wait_begin(void);
void vgpu_wait_end(const struct vgpu_wait *wait);

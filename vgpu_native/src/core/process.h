/* What a process keeps of its own: attached or not, and to what. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "vgpu.h"

enum vgpu_state { VGPU_NEW, VGPU_ATTACHING, VGPU_ON, VGPU_OFF };

/* The kernel clears this page in the child of every fork, so that a child begins as if nothing had
 * been: it owns no slot, and nobody in it is half-way through attaching. */
struct vgpu_process {
  uint32_t state;
  uint32_t meeting; /* held while a device is met for the first time */
  bool nothing;     /* no memory may be given, whatever the limits */
  uint64_t alone[VGPU_DEVICES_MAX]; /* what is used then, which no slot says */
  uint32_t owner; /* what our slot says while it is ours */
  struct vgpu_mapped mapped;
};

#ifdef __aarch64__
#define VGPU_PAGE 65536
#else
#define VGPU_PAGE 4096
#endif

extern union vgpu_own {
  struct vgpu_process process;
  unsigned char page[VGPU_PAGE];
} vgpu_own;

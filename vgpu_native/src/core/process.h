/* What a process keeps of its own: attached or not, and to what. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "vgpu.h"

enum vgpu_state { VGPU_NEW, VGPU_ATTACHING, VGPU_ON, VGPU_OFF };

#ifdef __aarch64__
#define VGPU_PAGE 65536
#else
#define VGPU_PAGE 4096
#endif

/* It fills a page, which the kernel clears in the child of every fork. A child begins as a new process:
 * it owns no slot, and no thread of it is half-way through attaching. */
extern struct vgpu_process {
  uint32_t state;
  uint32_t registering; /* held while a device is looked up for the first time */
  bool deny_memory;     /* no memory may be given, whatever the limits */
  uint64_t unslotted_bytes[VGPU_DEVICES_MAX]; /* used while this process has no slot of its own */
  uint32_t owner;       /* the word of the slot while it is this process's */
  struct vgpu_mapped mapped;
} __attribute__((aligned(VGPU_PAGE))) vgpu_process;

_Static_assert(sizeof vgpu_process == VGPU_PAGE, "the kernel clears whole pages");

/* What a process keeps of its own: attached or not, and to what. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/limits/limits_page.h"
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

/* What limits an entry, which stays known in the child of a fork; NULL: it was never met. */
const struct vgpu_source *vgpu_source_of(int entry);

/* Give the entries that are known their places in a region that was just attached to. */
void vgpu_entries_again(vgpu_region *region);

/* Sleep until a word of this process is no longer this; set it and wake who waits for it. */
void vgpu_wait_while(uint32_t *word, uint32_t value);
void vgpu_wake(uint32_t *word, uint32_t value);

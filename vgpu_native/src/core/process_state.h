/* The state of this process: whether it is attached, and to which region. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "vgpu.h"

/* VGPU_LATER: memory is denied for now, and a later call attaches. */
enum vgpu_state { VGPU_NEW, VGPU_ATTACHING, VGPU_ON, VGPU_OFF, VGPU_LATER };

#ifdef __aarch64__
#define VGPU_PAGE 65536
#else
#define VGPU_PAGE 4096
#endif

/* It fills a page, which the kernel clears in the child of every fork. So a child starts as a new
 * process, which owns no slot, and in which no thread is attaching. */
extern struct vgpu_process {
  uint32_t state;
  uint32_t registering; /* held while a device is looked up for the first time */
  bool deny_memory;     /* refuse all memory, under any limits */
  uint64_t unslotted_bytes[VGPU_DEVICES_MAX]; /* used while this process has no slot of its own */
  uint32_t owner;       /* the owner word of the slot while this process owns it */
  unsigned tries;       /* failed tries to attach */
  uint64_t next_try;    /* its time, in nanoseconds of the monotonic clock */
  struct vgpu_mapped mapped;
} __attribute__((aligned(VGPU_PAGE))) vgpu_process;

/* Whether this process has no slot for its usage. That also holds if it shares memory with a process
 * that has ended and whose thread owned the slot (clone with CLONE_VM): the slot may have a new owner. */
static inline bool vgpu_region_unusable(void) {
  /* It becomes false after the slot is set. */
  return __atomic_load_n(&vgpu_process.deny_memory, __ATOMIC_ACQUIRE) ||
         __atomic_load_n(&vgpu_process.mapped.slot->owner, __ATOMIC_RELAXED) != vgpu_process.owner;
}

_Static_assert(sizeof vgpu_process == VGPU_PAGE, "the kernel clears whole pages");

/* The process slots of a region: each belongs to one process, and counts while its owner lives. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

/* Own a slot of the region until this process ends, by a thread that sleeps from then on. NULL: all
 * slots have living owners (ENOSPC), or the thread cannot be started (another errno). */
vgpu_slot *vgpu_slot_own(vgpu_region *region);

/* Whether the slot's owner lives. */
static inline bool vgpu_slot_lives(const vgpu_slot *slot) {
  uint32_t owner = __atomic_load_n(&slot->owner, __ATOMIC_SEQ_CST);
  return owner & VGPU_OWNER_THREAD && !(owner & VGPU_OWNER_DIED);
}

/* One more than the highest slot that was ever owned. Any process can write the region's word. */
static inline unsigned vgpu_slots_high(const vgpu_region *region) {
  uint64_t high = __atomic_load_n(&region->high, __ATOMIC_SEQ_CST);
  return high < VGPU_SLOTS_MAX ? (unsigned)high : VGPU_SLOTS_MAX;
}

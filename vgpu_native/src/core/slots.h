/* The slots of a region: each is one process's, and counts for as long as its owner lives. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

/* Own a slot of the region until this process ends, by a thread that sleeps from then on. NULL: all
 * slots have living owners (ENOSPC), or there can be no such thread (another errno). */
vgpu_slot *vgpu_slot_own(vgpu_region *region);

/* Whether the slot's owner lives. */
static inline bool vgpu_slot_lives(const vgpu_slot *slot) {
  uint32_t owner = __atomic_load_n(&slot->owner, __ATOMIC_SEQ_CST);
  return owner & VGPU_OWNER_THREAD && !(owner & VGPU_OWNER_DIED);
}

/* How many slots were ever owned. The region's word is anybody's. */
static inline unsigned vgpu_slots_high(const vgpu_region *region) {
  uint64_t high = __atomic_load_n(&region->high, __ATOMIC_SEQ_CST);
  return high < VGPU_SLOTS_MAX ? (unsigned)high : VGPU_SLOTS_MAX;
}

/* How much of a card the driver takes for an allocation. It differs by card and driver, so it is measured. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The largest small allocation. Drivers may put several small allocations into one block. */
#define VGPU_SMALL_MAX (1ULL << 20)

/* Steps in bytes. `block`: small allocations share blocks of this size; 0: each takes steps of its own. */
struct vgpu_granularity {
  uint64_t small, large, block;
};

enum vgpu_allocation_kind { VGPU_LINEAR, VGPU_ARRAYS, VGPU_ALLOCATION_KINDS };

/* The granularity of the current context's device, whose entry is `entry`. The first call for a device
 * measures it; while that is impossible, the result is the largest known one. */
const struct vgpu_granularity *vgpu_granularity(enum vgpu_allocation_kind kind, int entry);

/* The bytes that the driver takes for a request that shares no block. Steps are powers of two. */
static inline uint64_t vgpu_granular(const struct vgpu_granularity *granularity, uint64_t bytes) {
  uint64_t step = bytes > VGPU_SMALL_MAX ? granularity->large : granularity->small, sum;
  return __builtin_add_overflow(bytes, step - 1, &sum) ? UINT64_MAX : sum & ~(step - 1);
}

/* The memory that all processes use of the current context's device. False: it is unknown. */
bool vgpu_card_used(uint64_t *used);

/* Measure all kinds for the current context's device, so that no later call of the program does. */
void vgpu_granularity_measure(int entry);

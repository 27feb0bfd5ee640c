/* The step by which the driver enlarges a store of memory: a pool, or the memory of graphs. It is not
 * documented, so it is learnt from the sizes that are seen. */
#pragma once

#include <stdint.h>

/* Assumed before the first growth. A smaller assumption would exceed the limit once. */
#define VGPU_GROWTH_ASSUMED (32ULL << 20)
#define VGPU_GROWTH_LEAST (2ULL << 20)
#define VGPU_GROWTH_MOST (1ULL << 30)

/* The step of a word that starts as zero. */
static inline uint64_t vgpu_growth_step(const uint64_t *word) {
  uint64_t step = __atomic_load_n(word, __ATOMIC_RELAXED);
  return step ? step : VGPU_GROWTH_ASSUMED;
}

/* Learn from a store that keeps `kept` bytes, and grew by `grown` for a request of at most `most`. A size that
 * is not a multiple of the step shows a smaller step; a growth beyond `most` a larger one. */
static inline void vgpu_growth_learn(uint64_t *word, uint64_t kept, uint64_t grown, uint64_t most) {
  uint64_t step = vgpu_growth_step(word), multiple = kept & -kept;
  if (kept && multiple < step) step = multiple > VGPU_GROWTH_LEAST ? multiple : VGPU_GROWTH_LEAST;
  while (grown > most && step < grown && step < VGPU_GROWTH_MOST) step *= 2;
  __atomic_store_n(word, step, __ATOMIC_RELAXED);
}

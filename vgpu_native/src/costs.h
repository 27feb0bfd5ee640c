/* What a kernel or a graph costs, as far as it was measured: a table in which each kind has one place. A
 * look at it is two loads, in every launch. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One kind of launch. Words are read and written one by one by all threads; a number that is lost
 * between two threads makes an estimate a little worse, and what is charged is set right anyway. */
struct vgpu_cost {
  uint64_t key;      /* 0: free */
  uint64_t ns;       /* of one launch, 0: not known yet */
  uint64_t launches; /* since one was measured last */
  uint64_t charged;  /* for those */
};

#define VGPU_COST_BITS 12
extern struct vgpu_cost vgpu_costs[1 << VGPU_COST_BITS];

/* Give a place to a kind of which nothing is known. */
void vgpu_cost_begin(struct vgpu_cost *cost, uint64_t key);

/* The place of a kind. Another kind may have to leave it, and is measured anew when it comes back. */
static inline struct vgpu_cost *vgpu_cost_of(uint64_t key) {
  struct vgpu_cost *cost = &vgpu_costs[key >> (64 - VGPU_COST_BITS)];
  if (__builtin_expect(__atomic_load_n(&cost->key, __ATOMIC_RELAXED) != key, 0)) vgpu_cost_begin(cost, key);
  return cost;
}

/* What to charge for a launch of a kind that is not known: as much as the last ones took. */
uint64_t vgpu_cost_unknown(void);

/* Take over a measurement of one launch. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns);

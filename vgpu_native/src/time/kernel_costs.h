/* What a kernel or a graph costs, as far as it was measured, and for how many launches of it is paid: a
 * table in which each kind has one place. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One kind of launch. Where two threads change a word at once, one that is not exact may lose a little,
 * which is set right with the next measurement; `left` is exact. */
struct vgpu_cost {
  uint64_t key;      /* 0: free */
  uint64_t ns;       /* of one launch, 0: not known yet */
  int64_t left;      /* launches that are paid for and not made yet */
  uint64_t paid;     /* launches that were paid for, ever */
  uint64_t launches; /* of them, since one was measured last */
  uint64_t charged;  /* for those */
} __attribute__((aligned(64)));

#define VGPU_COST_BITS 12
extern struct vgpu_cost vgpu_costs[1 << VGPU_COST_BITS];

/* The place of a kind, NULL if it has none. Most are where the first look finds them. */
struct vgpu_cost *vgpu_cost_seek(uint64_t key);
static inline struct vgpu_cost *vgpu_cost_find(uint64_t key) {
  struct vgpu_cost *home = &vgpu_costs[key >> (64 - VGPU_COST_BITS)];
  return __builtin_expect(__atomic_load_n(&home->key, __ATOMIC_RELAXED) == key, 1) ? home : vgpu_cost_seek(key);
}

/* Make a launch of a kind if it is paid for, which is all that most launches do. */
static inline bool vgpu_cost_spend(struct vgpu_cost *cost) {
  if (__atomic_load_n(&cost->left, __ATOMIC_RELAXED) <= 0) return false;
  if (__atomic_fetch_sub(&cost->left, 1, __ATOMIC_RELAXED) > 0) return true;
  __atomic_fetch_add(&cost->left, 1, __ATOMIC_RELAXED); /* another thread has made the last one */
  return false;
}

/* The place of a kind, which is given one if need be. Another kind may have to leave it, and is measured
 * anew when it comes back. */
struct vgpu_cost *vgpu_cost_place(uint64_t key);

/* For how many launches of a kind to pay ahead. */
uint64_t vgpu_cost_ahead(const struct vgpu_cost *cost, uint64_t ns);

/* Count launches that are paid for, with so much each. */
void vgpu_cost_paid(struct vgpu_cost *cost, uint64_t launches, uint64_t ns);

/* What to charge for a launch of a kind that is not known: as much as the last ones took. */
uint64_t vgpu_cost_unknown(void);

/* Take over a measurement of one launch. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns);

/* In the child of a fork: nothing is paid for. */
void vgpu_costs_reset_prepaid(void);

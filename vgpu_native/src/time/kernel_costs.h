/* The measured cost of kernels and graphs, and how many of their launches are paid for: a table with one
 * place for each kind of launch. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One kind of launch. When two threads change a word at the same time, a change may be lost, which the
 * next measurement corrects. Only `left` is exact. */
struct vgpu_cost {
  uint64_t key;      /* 0: free */
  uint64_t ns;       /* of one launch, 0: not known yet */
  int64_t left;      /* launches that are paid for and not made yet */
  uint64_t paid;     /* launches that were ever paid for */
  uint64_t launches; /* paid launches since the last measurement */
  uint64_t charged;  /* nanoseconds charged for those */
} __attribute__((aligned(64)));

#define VGPU_COST_BITS 12
extern struct vgpu_cost vgpu_costs[1 << VGPU_COST_BITS];

/* The place of a kind, NULL if it has none. Most kinds are at their home, which is read first. */
struct vgpu_cost *vgpu_cost_seek(uint64_t key);
static inline struct vgpu_cost *vgpu_cost_find(uint64_t key) {
  struct vgpu_cost *home = &vgpu_costs[key >> (64 - VGPU_COST_BITS)];
  return __builtin_expect(__atomic_load_n(&home->key, __ATOMIC_RELAXED) == key, 1) ? home : vgpu_cost_seek(key);
}

/* Spend one paid launch of a kind; false: none is left. Most launches do only this. */
static inline bool vgpu_cost_spend(struct vgpu_cost *cost) {
  if (__atomic_load_n(&cost->left, __ATOMIC_RELAXED) <= 0) return false;
  if (__atomic_fetch_sub(&cost->left, 1, __ATOMIC_RELAXED) > 0) return true;
  __atomic_fetch_add(&cost->left, 1, __ATOMIC_RELAXED); /* another thread took the last one */
  return false;
}

/* The place of a kind, which gets one if it has none. Another kind may lose its place, and is then
 * measured again when it returns. */
struct vgpu_cost *vgpu_cost_place(uint64_t key);

/* The number of launches of a kind to pay ahead, each of `ns` nanoseconds. */
uint64_t vgpu_cost_ahead(const struct vgpu_cost *cost, uint64_t ns);

/* Count paid launches, each of `ns` nanoseconds. */
void vgpu_cost_paid(struct vgpu_cost *cost, uint64_t launches, uint64_t ns);

/* The charge for a launch of an unknown kind: a mean of the last launches, in nanoseconds. */
uint64_t vgpu_cost_unknown(void);

/* Apply a measurement of one launch. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns);

/* In the child of a fork no launch is paid for. */
void vgpu_costs_reset_prepaid(void);

/* The measured cost of kernels and graphs, and how many of their launches are paid for: a table with one
 * place for each kind of launch. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One kind of launch. When two threads change a word at the same time, a change may be lost, which the
 * next measurement corrects. Only `left` and `due` are exact. */
struct vgpu_cost {
  uint64_t key;      /* 0: free */
  uint64_t ns;       /* the mean of one launch, 0: not known yet */
  int64_t left;      /* launches that are paid for and not made yet */
  uint64_t paid;     /* launches that were ever paid for */
  uint64_t variance; /* the mean square of the distance from the mean */
  uint64_t due_ns;   /* the price of a launch when `due` was set */
  uint32_t due;      /* launches that the next unpaid launch represents, because it is measured; 0: none */
  uint32_t measured; /* the number of measurements */
  uint32_t waiting;  /* launches that are measured and have not ended */
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

/* Which launches of a kind are measured is chosen by chance, each with the probability 1 / `weight`, independent
 * of all other choices. A measured launch represents `weight` launches, so that the charge is right in the mean
 * for any order of long and short launches. */
struct vgpu_choice {
  unsigned weight; /* of this launch; 0: it is not measured */
  uint64_t ns;     /* the price of a launch at the time of the choice; 0: what it pays */
  unsigned next;   /* the weight of later launches */
  unsigned gap;    /* later launches before the next one that is measured */
};

/* Choose for a launch that is not paid for, and for those after it. */
struct vgpu_choice vgpu_cost_choose(struct vgpu_cost *cost);

/* Count a paid launch, and add `ahead` paid launches. If that is the choice's gap, the launch after them is
 * measured. Returns the number of added launches: none if a measurement is due already. */
uint64_t vgpu_cost_pay_ahead(struct vgpu_cost *cost, const struct vgpu_choice *choice, uint64_t ahead, uint64_t ns);

/* Count a launch that is measured, and the end of its measurement. */
void vgpu_cost_waits(struct vgpu_cost *cost);
void vgpu_cost_waited(struct vgpu_cost *cost, uint64_t key);

/* Whether so many launches of a kind wait for their measurement that more must wait. A kind starts slowly, so
 * that few launches are made before it is known that some of them are long. */
bool vgpu_cost_full(const struct vgpu_cost *cost);

/* The charge for a launch of an unknown kind: a mean of the first launches, in nanoseconds. */
uint64_t vgpu_cost_unknown(void);

/* Apply a measurement of one launch. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns);

/* Measure all kinds again as new ones, because some launch was longer than its price. The launches that were paid
 * ahead are lost. Later choices depend on earlier launches only, so that they favour none. */
void vgpu_costs_relearn(void);

/* In the child of a fork no launch is paid for. */
void vgpu_costs_reset_prepaid(void);

/* The costs of kinds of launches, by measurement. */
#include "time/kernel_costs.h"

#include <stddef.h>

#include "util/assert.h"

#define LEAST_NS 500    /* the resolution of a device's timers */
#define AHEAD_NS 500000 /* the most time of a device that is paid ahead */
#define AHEAD_MAX 127   /* the most launches that are paid ahead */
#define SHARE_AHEAD 8   /* at most this part of the launches so far, because a kind may not return */

enum { WAYS = 8 }; /* places that a kind may have */

struct vgpu_cost vgpu_costs[1 << VGPU_COST_BITS];
static uint64_t typical = 100000; /* a running mean of all measurements */

static uint64_t get(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

/* One of the possible places of a kind; way 0 is its home. */
static struct vgpu_cost *place(uint64_t key, unsigned way) {
  return &vgpu_costs[(key >> (64 - VGPU_COST_BITS)) ^ way];
}

static struct vgpu_cost *seek(uint64_t key, uint64_t held) {
  for (unsigned way = 0; way < WAYS; way++)
    if (get(&place(key, way)->key) == held) return place(key, way);
  return NULL;
}

struct vgpu_cost *vgpu_cost_seek(uint64_t key) { return seek(key, key); }

static void begin(struct vgpu_cost *cost, uint64_t key) {
  set(&cost->key, key);
  set(&cost->ns, 0);
  __atomic_store_n(&cost->left, 0, __ATOMIC_RELAXED);
  set(&cost->paid, 0);
  set(&cost->launches, 0);
  set(&cost->charged, 0);
}

/* The replaced kind rotates, so that two kinds do not replace each other again and again. */
struct vgpu_cost *vgpu_cost_place(uint64_t key) {
  VGPU_ASSERT(key); /* 0 marks a free place */
  static unsigned next;
  struct vgpu_cost *cost = seek(key, key);
  if (cost) return cost;
  cost = seek(key, 0);
  if (!cost) cost = place(key, __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % WAYS);
  begin(cost, key);
  return cost;
}

static uint64_t least(uint64_t one, uint64_t other) { return one < other ? one : other; }

uint64_t vgpu_cost_ahead(const struct vgpu_cost *cost, uint64_t ns) {
  VGPU_ASSERT(ns >= LEAST_NS);
  return least(least(AHEAD_MAX, AHEAD_NS / ns), get(&cost->paid) / SHARE_AHEAD);
}

void vgpu_cost_paid(struct vgpu_cost *cost, uint64_t launches, uint64_t ns) {
  __atomic_fetch_add(&cost->paid, launches, __ATOMIC_RELAXED);
  __atomic_fetch_add(&cost->launches, launches, __ATOMIC_RELAXED);
  __atomic_fetch_add(&cost->charged, launches * ns, __ATOMIC_RELAXED);
}

uint64_t vgpu_cost_unknown(void) { return get(&typical); }

/* The mean, moved a quarter of the way to a measurement. */
static uint64_t towards(uint64_t mean, uint64_t ns) {
  int64_t next = (int64_t)mean + ((int64_t)ns - (int64_t)mean) / 4;
  return next < LEAST_NS ? LEAST_NS : (uint64_t)next;
}

/* A much longer measurement counts in full, although it may include another tenant's turn: a kernel that
 * has more work only now and then looks the same. After it the estimate is high, so that launches of the
 * kind are measured more often for a while. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns) {
  set(&typical, towards(get(&typical), ns));
  if (get(&cost->key) != key) return; /* another kind has the place */
  uint64_t known = get(&cost->ns);
  set(&cost->ns, towards(known ? known : ns, ns));
}

void vgpu_costs_reset_prepaid(void) {
  for (unsigned i = 0; i < sizeof vgpu_costs / sizeof *vgpu_costs; i++)
    if (vgpu_costs[i].left) vgpu_costs[i].left = 0;
}

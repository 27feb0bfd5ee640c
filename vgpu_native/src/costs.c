/* The costs are kept in a table in which each kind has one place: a look at it is two loads. */
#include "costs.h"

#include <stddef.h>

#define BITS 12
#define LEAST_NS 500 /* timers of devices tell no less apart */
#define OUTLIER 4    /* a launch that stands for others counts as so many estimates at most */

static struct vgpu_cost costs[1 << BITS];
static uint64_t typical = 100000; /* a running mean of all measurements */

static uint64_t get(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

struct vgpu_cost *vgpu_cost_of(uint64_t key) {
  struct vgpu_cost *cost = &costs[key >> (64 - BITS)];
  if (__builtin_expect(get(&cost->key) != key, 0)) {
    set(&cost->key, key);
    set(&cost->ns, 0);
    set(&cost->launches, 0);
    set(&cost->charged, 0);
  }
  return cost;
}

uint64_t vgpu_cost_unknown(void) { return get(&typical); }

/* A quarter of the way to what was measured. */
static uint64_t towards(uint64_t mean, uint64_t ns) {
  int64_t next = (int64_t)mean + ((int64_t)ns - (int64_t)mean) / 4;
  return next < LEAST_NS ? LEAST_NS : (uint64_t)next;
}

uint64_t vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns, uint64_t launches) {
  uint64_t known = get(&cost->key) == key ? get(&cost->ns) : 0;
  /* A launch that was interrupted by another tenant's turn must not stand for many that were not. */
  if (known && launches > 1 && ns > OUTLIER * known) ns = OUTLIER * known;
  if (get(&cost->key) == key) set(&cost->ns, known ? towards(known, ns) : ns < LEAST_NS ? LEAST_NS : ns);
  set(&typical, towards(get(&typical), ns));
  return ns;
}

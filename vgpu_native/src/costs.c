/* What kinds cost, as it is learnt. */
#include "costs.h"

#define LEAST_NS 500 /* timers of devices tell no less apart */

struct vgpu_cost vgpu_costs[1 << VGPU_COST_BITS];
static uint64_t typical = 100000; /* a running mean of all measurements */

static uint64_t get(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
static void set(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

void vgpu_cost_begin(struct vgpu_cost *cost, uint64_t key) {
  set(&cost->key, key);
  set(&cost->ns, 0);
  set(&cost->launches, 0);
  set(&cost->charged, 0);
}

uint64_t vgpu_cost_unknown(void) { return get(&typical); }

/* A quarter of the way to what was measured. */
static uint64_t towards(uint64_t mean, uint64_t ns) {
  int64_t next = (int64_t)mean + ((int64_t)ns - (int64_t)mean) / 4;
  return next < LEAST_NS ? LEAST_NS : (uint64_t)next;
}

/* One that took much longer counts in full, though another tenant's turn may have come in between: a
 * kernel that has more to do only now and then looks the same, and most of the time may be its. After
 * it the estimate is high, so that launches of the kind are measured more often for a while. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns) {
  set(&typical, towards(get(&typical), ns));
  if (get(&cost->key) != key) return; /* it has had to make room */
  uint64_t known = get(&cost->ns);
  set(&cost->ns, towards(known ? known : ns, ns));
}

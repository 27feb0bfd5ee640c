/* A budget is one word: the time up to which the share is used. It needs no refill. Every change is one
 * atomic operation, so that neither a race nor a killed process can corrupt it. */
#include "time/time_budget.h"

#include "util/assert.h"

/* The largest debt, as time that must pass. A larger value comes from the clock of another boot, or from
 * a tenant that wrote into the region. */
#define DEBT_MAX_NS (600 * 1000000000LL)

static int64_t clamped(int64_t value, int64_t least, int64_t most) {
  return value < least ? least : value > most ? most : value;
}

/* The time up to which the share is used, no earlier than one burst before now. */
static int64_t used_until(uint64_t word, int64_t now) {
  if (word > INT64_MAX) return now;
  return clamped((int64_t)word, now - VGPU_BURST_NS, now + DEBT_MAX_NS);
}

/* The same after `ns` more were used. */
static uint64_t used_after(uint64_t word, int64_t now, int64_t ns, unsigned share) {
  VGPU_ASSERT(share >= 1 && share < 100);
  int64_t must_pass = clamped(ns, -DEBT_MAX_NS, DEBT_MAX_NS) * 100 / (share ? share : 1);
  int64_t after = clamped(used_until(word, now) + must_pass, now - VGPU_BURST_NS, now + DEBT_MAX_NS);
  VGPU_ASSERT(ns < 0 ? after <= used_until(word, now) : after >= used_until(word, now));
  return (uint64_t)after;
}

static bool replace(vgpu_budget *budget, uint64_t *before, uint64_t after) {
  return __atomic_compare_exchange_n(&budget->used_until, before, after, true, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

void vgpu_budget_charge(vgpu_budget *budget, int64_t ns, unsigned share) {
  int64_t now = (int64_t)vgpu_monotonic();
  uint64_t before = __atomic_load_n(&budget->used_until, __ATOMIC_RELAXED), after;
  do after = used_after(before, now, ns, share);
  while (!replace(budget, &before, after));
}

static uint64_t wait_of(uint64_t word, uint64_t now) {
  int64_t until = used_until(word, (int64_t)now);
  return until > (int64_t)now ? (uint64_t)(until - (int64_t)now) : 0;
}

uint64_t vgpu_budget_wait(const vgpu_budget *budget, uint64_t now) {
  return wait_of(__atomic_load_n(&budget->used_until, __ATOMIC_RELAXED), now);
}

uint64_t vgpu_budget_take(vgpu_budget *budget, int64_t ns, unsigned share, uint64_t now) {
  uint64_t before = __atomic_load_n(&budget->used_until, __ATOMIC_RELAXED), wait;
  do {
    if ((wait = wait_of(before, now))) return wait;
  } while (!replace(budget, &before, used_after(before, (int64_t)now, ns, share)));
  return 0;
}

/* A pause that is longer than possible is ignored, because a tenant wrote it. */
bool vgpu_budget_let_on(vgpu_budget *budget, uint64_t now, uint64_t pause) {
  uint64_t until = __atomic_load_n(&budget->let_on, __ATOMIC_RELAXED);
  if (until > now && until - now <= VGPU_PAUSE_MAX_NS) return false;
  return __atomic_compare_exchange_n(&budget->let_on, &until, now + pause, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED);
}

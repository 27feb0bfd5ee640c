/* The costs of kinds of launches, by measurement. */
#include "time/kernel_costs.h"

#include <stddef.h>

#include "time/random.h"
#include "util/arithmetic.h"
#include "util/assert.h"

#define LEAST_NS 500    /* the resolution of a device's timers */
#define AHEAD_NS 500000 /* the most time of a device that is paid ahead */
#define AHEAD_MAX 255   /* the most launches that are paid ahead */
#define SHARE_AHEAD 8   /* at most this part of the launches so far, because a kind may not return */

#define WEIGHT_MAX 128     /* launches that one measured launch represents */
#define SAMPLE_NS 1000000  /* work of a kind between two measurements, in the mean */
#define MEAN_OF 16         /* measurements that the mean reaches back */
#define VARIANCE_OF 64     /* the same for the variance */
#define FAR_NS 4000000000U /* its square fits in a word */

/* How much the sum of charges may vary by chance: its variance in one second of a device's work, as a time.
 * The square root of 50 us by 1 s is 7 ms, 0.7 % of a second. */
#define VARIES_NS 50000

#define START 2      /* launches of a new kind that wait for their measurement */
#define START_PART 4 /* later this part of those that were measured */

enum { WAYS = 8 }; /* places that a kind may have */

struct vgpu_cost vgpu_costs[1 << VGPU_COST_BITS];
static uint64_t typical = 100000; /* a running mean of the first launches of kinds */

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
  set(&cost->variance, 0);
  __atomic_store_n(&cost->due, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&cost->measured, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&cost->waiting, 0, __ATOMIC_RELAXED);
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

uint64_t vgpu_cost_ahead(const struct vgpu_cost *cost, uint64_t ns) {
  VGPU_ASSERT(ns >= LEAST_NS);
  return vgpu_least(vgpu_least(AHEAD_MAX, AHEAD_NS / ns), get(&cost->paid) / SHARE_AHEAD);
}

/* The launches that one measured launch of a kind represents, a power of two. It is small for a new kind, for
 * long kernels, because the measurements also show how much work is queued, and for kernels of one kind that
 * differ much. It depends on earlier launches only, so that it may not favour any. */
static unsigned weight_of(const struct vgpu_cost *cost) {
  uint64_t ns = get(&cost->ns), variance = get(&cost->variance);
  if (!ns) return 1;
  uint64_t most = vgpu_least(vgpu_least(WEIGHT_MAX, SAMPLE_NS / ns), get(&cost->paid) / SHARE_AHEAD);
  if (variance > ns) most = vgpu_least(most, VARIES_NS / (variance / ns));
  return most < 2 ? 1 : 1U << (63 - __builtin_clzll(most));
}

/* A launch that is not due has its chance first, and those after it have the next ones. */
struct vgpu_choice vgpu_cost_choose(struct vgpu_cost *cost) {
  struct vgpu_choice choice = {.next = weight_of(cost), .ns = get(&cost->due_ns)};
  choice.gap = vgpu_chance_gap(choice.next);
  choice.weight = __atomic_exchange_n(&cost->due, 0, __ATOMIC_ACQ_REL);
  if (choice.weight) return choice;
  choice.ns = 0;
  if (choice.gap) {
    choice.gap -= choice.gap < VGPU_GAP_MAX; /* so many may be more */
  } else {
    choice.weight = choice.next;
    choice.gap = vgpu_chance_gap(choice.next);
  }
  return choice;
}

/* Another thread may have chosen at the same time. Launches after its choice get their own chance. */
uint64_t vgpu_cost_pay_ahead(struct vgpu_cost *cost, const struct vgpu_choice *choice, uint64_t ahead, uint64_t ns) {
  uint32_t none = 0;
  if (choice->gap == ahead) {
    if (!__atomic_compare_exchange_n(&cost->due, &none, choice->next, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
      ahead = 0;
    else set(&cost->due_ns, ns);
  }
  __atomic_fetch_add(&cost->paid, 1 + ahead, __ATOMIC_RELAXED);
  __atomic_fetch_add(&cost->left, (int64_t)ahead, __ATOMIC_RELAXED);
  return ahead;
}

void vgpu_cost_waits(struct vgpu_cost *cost) { __atomic_fetch_add(&cost->waiting, 1, __ATOMIC_RELAXED); }

void vgpu_cost_waited(struct vgpu_cost *cost, uint64_t key) {
  uint32_t waiting = __atomic_load_n(&cost->waiting, __ATOMIC_RELAXED);
  if (get(&cost->key) != key) return; /* another kind has the place, whose count began at 0 */
  while (waiting && !__atomic_compare_exchange_n(&cost->waiting, &waiting, waiting - 1, true, __ATOMIC_RELAXED,
                                                 __ATOMIC_RELAXED))
    continue;
}

bool vgpu_cost_full(const struct vgpu_cost *cost) {
  uint32_t waiting = __atomic_load_n(&cost->waiting, __ATOMIC_RELAXED);
  return waiting >= START && waiting >= __atomic_load_n(&cost->measured, __ATOMIC_RELAXED) / START_PART;
}

uint64_t vgpu_cost_unknown(void) { return get(&typical); }

/* The mean, moved by a part of the way to a measurement. */
static uint64_t towards(uint64_t mean, uint64_t value, uint64_t part) {
  return value > mean ? mean + (value - mean) / part : mean - (mean - value) / part;
}

static uint64_t distance(uint64_t one, uint64_t other) {
  return vgpu_least(one > other ? one - other : other - one, FAR_NS);
}

/* The variance reaches back farther than the mean, so that a kind that was long once is measured often for a
 * while. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns) {
  if (get(&cost->key) != key) return; /* another kind has the place */
  if (ns < LEAST_NS) ns = LEAST_NS;
  unsigned measured = __atomic_add_fetch(&cost->measured, 1, __ATOMIC_RELAXED);
  uint64_t before = get(&cost->ns), mean = before ? towards(before, ns, vgpu_least(measured, MEAN_OF)) : ns;
  if (!before) set(&typical, towards(get(&typical), ns, 4));
  uint64_t square = before ? distance(ns, before) * distance(ns, mean) : 0;
  set(&cost->variance, towards(get(&cost->variance), square, vgpu_least(measured, VARIANCE_OF)));
  set(&cost->ns, mean);
}

void vgpu_costs_relearn(void) {
  for (unsigned i = 0; i < sizeof vgpu_costs / sizeof *vgpu_costs; i++) {
    struct vgpu_cost *cost = &vgpu_costs[i];
    if (get(&cost->paid) <= 1) continue;
    __atomic_store_n(&cost->left, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&cost->due, 0, __ATOMIC_RELAXED);
    set(&cost->paid, 1);
  }
}

void vgpu_costs_reset_prepaid(void) {
  for (unsigned i = 0; i < sizeof vgpu_costs / sizeof *vgpu_costs; i++) {
    if (vgpu_costs[i].left) vgpu_costs[i].left = 0;
    if (vgpu_costs[i].due) vgpu_costs[i].due = 0;
    if (vgpu_costs[i].waiting) vgpu_costs[i].waiting = 0;
  }
}

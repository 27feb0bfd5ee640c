/* The table of costs: threads spend exactly the paid launches, kinds keep their places, and what is charged for
 * launches in any order is what they take. Exits with 1 if one of these fails. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "time/kernel_costs.h"
#include "time/random.h"

enum { THREADS = 4, ROUNDS = 16, PAID = 10000000, KINDS = 700, LAUNCHES = 1000000 };

static int wrong(const char *what, long long is, long long should) {
  printf("%s: %lld, not %lld\n", what, is, should);
  return 1;
}

/* Keys over all places, like those of addresses. */
static uint64_t key_of(uint64_t kind) {
  uint64_t key = kind * 0x9e3779b97f4a7c15ULL;
  key = (key ^ key >> 29) * 0xbf58476d1ce4e5b9ULL;
  return (key ^ key >> 32) | 1;
}

static pthread_barrier_t together;

static void *spend(void *cost) {
  long launches = 0;
  pthread_barrier_wait(&together);
  while (vgpu_cost_spend(cost)) launches++;
  return (void *)launches;
}

static int spend_once(void) {
  pthread_t threads[THREADS];
  void *launches;
  long total = 0;
  struct vgpu_cost *cost = vgpu_cost_place(key_of(1));
  cost->left = PAID;
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, spend, cost);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], &launches);
    total += (long)launches;
  }
  if (cost->left) return wrong("launches left", cost->left, 0);
  return total == PAID ? 0 : wrong("launches", total, PAID);
}

/* On a busy machine the threads of one round may run one after the other. */
static int check_spending(void) {
  int failed = pthread_barrier_init(&together, NULL, THREADS);
  for (int i = 0; i < ROUNDS && !failed; i++) failed = spend_once();
  return failed;
}

/* Far fewer kinds than places. If each had only one place, some would replace others. */
static int check_places(void) {
  int known = 0;
  for (uint64_t kind = 1; kind <= KINDS; kind++)
    vgpu_cost_learn(vgpu_cost_place(key_of(kind)), key_of(kind), 1000);
  for (uint64_t kind = 1; kind <= KINDS; kind++) {
    struct vgpu_cost *cost = vgpu_cost_find(key_of(kind));
    known += cost && cost->ns == 1000;
  }
  return known == KINDS ? 0 : wrong("kinds that are known", known, KINDS);
}

/* Launches paid ahead of a kind that never returns are lost: a small part of its launches. */
static int check_ahead(void) {
  const struct vgpu_choice none = {.gap = VGPU_GAP_MAX};
  struct vgpu_cost *cost = vgpu_cost_place(key_of(2));
  for (long made = 1; made < 100000; made++) {
    vgpu_cost_pay_ahead(cost, &none, 0, 1000);
    uint64_t ahead = vgpu_cost_ahead(cost, 1000);
    if (ahead * 8 > (uint64_t)made || ahead > 255) return wrong("paid ahead", (long long)ahead, made / 8);
    if (made == 50000 && ahead < 200) return wrong("paid ahead", (long long)ahead, 255);
  }
  uint64_t ahead = vgpu_cost_ahead(cost, 100000);
  return ahead == 5 ? 0 : wrong("launches of 100 us paid ahead", (long long)ahead, 5);
}

/* A kind of launches, whose lengths may depend on what a program can see: whether the last was measured. */
static uint64_t launches, last_measured, kinds = KINDS;
typedef uint64_t length_of(uint64_t turn, uint64_t period, uint64_t ratio);

static uint64_t periodic(uint64_t turn, uint64_t period, uint64_t ratio) {
  return 2000 * (turn % period ? 1 : ratio);
}
static uint64_t long_after_measured(uint64_t turn, uint64_t period, uint64_t ratio) {
  return 2000 * (turn - last_measured <= period ? ratio : 1);
}
static uint64_t short_after_measured(uint64_t turn, uint64_t period, uint64_t ratio) {
  return 2000 * (turn - last_measured > period ? ratio : 1);
}

/* Pay for a launch that is not paid for, as launch_pacing.c does. Returns the charge for it and later ones. */
static double pay(struct vgpu_cost *cost, uint64_t key, uint64_t length) {
  struct vgpu_choice choice = vgpu_cost_choose(cost);
  uint64_t price = cost->ns ? cost->ns : vgpu_cost_unknown();
  uint64_t ahead = cost->ns ? vgpu_cost_ahead(cost, price) : 0;
  ahead = vgpu_cost_pay_ahead(cost, &choice, ahead < choice.gap ? ahead : choice.gap, price);
  double charged = (double)price * (double)(1 + ahead), expected = (double)(choice.ns ? choice.ns : price);
  if (!choice.weight) return charged;
  last_measured = launches;
  vgpu_cost_learn(cost, key, length);
  return charged + choice.weight * ((double)length - expected) + expected - (double)price;
}

static int check_charges(const char *name, length_of *length_of, uint64_t period, uint64_t ratio) {
  double charged = 0, taken = 0;
  uint64_t key = key_of(++kinds);
  struct vgpu_cost *cost = vgpu_cost_place(key);
  for (launches = last_measured = 0; launches < LAUNCHES; launches++) {
    uint64_t length = length_of(launches, period, ratio);
    taken += (double)length;
    if (!vgpu_cost_spend(cost)) charged += pay(cost, key, length);
  }
  double share = charged / taken;
  double may = period > 8 ? 0.25 : 0.04; /* long launches that are few are measured by chance */
  if (share > 1 - may && share < 1 + may) return 0;
  printf("%s, period %d, ratio %d: charged %.3f of what was taken\n", name, (int)period, (int)ratio, share);
  return 1;
}

static int check_patterns(void) {
  static const uint64_t periods[] = {2, 4, 8, 129}, ratios[] = {5, 50, 1000};
  int wrong = 0;
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 3; k++) {
      wrong |= check_charges("periodic", periodic, periods[i], ratios[k]);
      wrong |= check_charges("long after a measurement", long_after_measured, periods[i], ratios[k]);
      wrong |= check_charges("short after a measurement", short_after_measured, periods[i], ratios[k]);
    }
  return wrong;
}

/* How far apart the chances of one in eight are on average: (7/8) ^ 256 is near to 0. */
static int check_chances(void) {
  long gaps = 0;
  for (long i = 0; i < LAUNCHES; i++) gaps += vgpu_chance_gap(8);
  return labs(gaps - 7L * LAUNCHES) > LAUNCHES / 7 ? wrong("launches between", gaps, 7L * LAUNCHES) : 0;
}

int main(void) {
  return check_spending() || check_places() || check_ahead() || check_chances() || check_patterns();
}

/* The table of costs: threads spend exactly the paid launches, and kinds keep their places. Exits with 1 if
 * either fails. */
#include <pthread.h>
#include <stdio.h>

#include "time/kernel_costs.h"

enum { THREADS = 4, PAID = 20000000, KINDS = 700 };

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

static void *spend(void *cost) {
  long launches = 0;
  while (vgpu_cost_spend(cost)) launches++;
  return (void *)launches;
}

static int check_spending(void) {
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
  struct vgpu_cost *cost = vgpu_cost_place(key_of(2));
  for (long made = 1; made < 100000; made++) {
    vgpu_cost_paid(cost, 1, 1000);
    uint64_t ahead = vgpu_cost_ahead(cost, 1000);
    if (ahead * 8 > (uint64_t)made || ahead > 127) return wrong("paid ahead", (long long)ahead, made / 8);
    if (made == 50000 && ahead < 100) return wrong("paid ahead", (long long)ahead, 127);
  }
  uint64_t ahead = vgpu_cost_ahead(cost, 100000);
  return ahead == 5 ? 0 : wrong("launches of 100 us paid ahead", (long long)ahead, 5);
}

int main(void) { return check_spending() || check_places() || check_ahead(); }

/* Threads of one process, from the first call on: threads COUNT ROUNDS. Prints each failure. */
#include <pthread.h>

#include "common.h"

enum { DEVICES = 3 };

static uint64_t held[DEVICES];
static unsigned rounds;

static void *work(void *number) {
  uint64_t seed = (uint64_t)(uintptr_t)number + 1;
  for (unsigned i = 0; i < rounds; i++) {
    unsigned n = (unsigned)random_below(&seed, DEVICES);
    uint64_t bytes = 1 + random_below(&seed, 600 * MIB);
    int entry = device(n);
    if (!vgpu_reserve(entry, bytes)) continue;
    uint64_t all = __atomic_add_fetch(&held[n], bytes, __ATOMIC_SEQ_CST);
    if (all > 1000 * MIB) puts("more than the limit was given");
    if (vgpu_used(entry) < bytes) puts("what is held is not charged");
    if (i % 16 == 0) sched_yield();
    __atomic_fetch_sub(&held[n], bytes, __ATOMIC_SEQ_CST);
    vgpu_release(entry, bytes);
  }
  return NULL;
}

int main(int count, char **words) {
  pthread_t threads[64];
  if (count != 3) return 2;
  unsigned number = (unsigned)atoi(words[1]);
  rounds = (unsigned)atoi(words[2]);
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "1000m", 1);
  for (uintptr_t i = 0; i < number; i++) pthread_create(&threads[i], NULL, work, (void *)i);
  for (unsigned i = 0; i < number; i++) pthread_join(threads[i], NULL);
  for (unsigned n = 0; n < DEVICES; n++)
    if (vgpu_used(device(n))) puts("what was released is still charged");
  return 0;
}

/* memory_threads SEED: threads allocate by all allocators at once, up to the limit, and free the allocations
 * of others. At the end nothing is charged and nothing is allocated. */
#include <pthread.h>

#include "allocators.h"

#define THREADS 6
#define OPERATIONS 2500
#define SHARED 64

static struct taken shared[SHARED];
static pthread_mutex_t lock[SHARED];
static CUcontext context;

static uint64_t chance(uint64_t *state, uint64_t below) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state % below;
}

/* Allocate into an empty place, or free the allocation there, of any thread. */
static void step(uint64_t *state) {
  uint64_t at = chance(state, SHARED), bytes = 1 + chance(state, 12 << 20);
  const struct allocator *by = &allocators[chance(state, ALLOCATORS)];
  pthread_mutex_lock(&lock[at]);
  struct taken was = shared[at];
  shared[at].by = NULL;
  if (!was.by) {
    struct taken now;
    if (take(by, bytes, &now)) shared[at] = now;
  }
  pthread_mutex_unlock(&lock[at]);
  /* A stream may free the memory of cuMemAlloc, too. */
  if (was.by && !strcmp(was.by->name, "linear") && chance(state, 2)) OK(give_async(&was));
  else if (was.by) give(&was);
  if (!chance(state, 100)) settle();
}

static void *thread(void *seed) {
  uint64_t state = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15ULL | 1;
  OK(cuCtxSetCurrent(context));
  for (int i = 0; i < OPERATIONS; i++) step(&state);
  return NULL;
}

/* All use the driver's own pool for the first time at once, and it is added once. */
static pthread_barrier_t together;

static void *meet(void *nothing) {
  struct taken taken = {.by = NULL};
  OK(cuCtxSetCurrent(context));
  pthread_barrier_wait(&together);
  OK(take_async(MIB, &taken));
  pthread_barrier_wait(&together);
  CHECK(charged() == physical());
  pthread_barrier_wait(&together);
  OK(give_async(&taken));
  return nothing;
}

static void run(void *(*what)(void *), uintptr_t seed) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, what, (void *)(seed + i));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  uintptr_t seed = strtoull(arguments[1], NULL, 0) * 100 + 1;
  context = begin(0);
  pthread_barrier_init(&together, NULL, THREADS);
  run(meet, 0);
  pool_of_mine();
  for (int i = 0; i < SHARED; i++) pthread_mutex_init(&lock[i], NULL);
  run(thread, seed);
  CHECK(charged() >= physical());
  for (int i = 0; i < SHARED; i++) {
    if (shared[i].by) give(&shared[i]);
  }
  settle();
  CHECK(physical() == 0);
  CHECK(charged() == 0);
  return 0;
}

/* Kill and count: fuzz PROCESSES MILLISECONDS SEED. Workers reserve and release. The parent stops them
 * all, sums the memory that they hold, which is exact then, kills a random worker and starts another.
 *
 * A worker holds memory from after the grant until before the release, like a driver's allocation. */
#include "common.h"
#include "core/region_file.h"
#include "core/process_slots.h"

enum { WORKERS = 64, BLOCKS = 16 };

struct worker {
  uint64_t holds, grants, refusals;
  char pad[40]; /* a cache line each */
};

static struct worker *workers;
static pid_t pids[WORKERS];

static void work(struct worker *self, uint64_t seed) {
  uint64_t blocks[BLOCKS] = {0};
  int entry = device(0);
  uint64_t most = vgpu_limit(entry) / 3;
  for (;;) {
    uint64_t *block = &blocks[random_below(&seed, BLOCKS)];
    if (*block) {
      __atomic_fetch_sub(&self->holds, *block, __ATOMIC_SEQ_CST);
      vgpu_release(entry, *block);
      *block = 0;
      continue;
    }
    uint64_t bytes = 1 + random_below(&seed, most);
    if (vgpu_reserve(entry, bytes)) {
      __atomic_fetch_add(&self->holds, *block = bytes, __ATOMIC_SEQ_CST);
      self->grants++;
    } else self->refusals++;
  }
}

static void start(unsigned i, uint64_t seed) {
  workers[i].holds = 0;
  pids[i] = fork();
  if (!pids[i]) work(&workers[i], seed | 1);
}

static void end(unsigned i) {
  kill(pids[i], SIGKILL);
  waitpid(pids[i], NULL, 0);
}

static uint64_t held(unsigned count) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < count; i++) kill(pids[i], SIGSTOP);
  for (unsigned i = 0; i < count; i++) waitpid(pids[i], NULL, WUNTRACED);
  for (unsigned i = 0; i < count; i++) sum += __atomic_load_n(&workers[i].holds, __ATOMIC_SEQ_CST);
  return sum;
}

/* The usage in the region, read by a process that does not use it. */
static uint64_t charged(const vgpu_region *region) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < vgpu_slots_high(region); i++)
    if (vgpu_slot_lives(&region->slot[i])) sum += region->used[0].slot[i];
  return sum;
}

int main(int count, char **words) {
  if (count != 4) return 2;
  unsigned processes = (unsigned)atoi(words[1]);
  uint64_t limit = 2000 * MIB, until = nanoseconds() + strtoull(words[2], NULL, 0) * 1000000;
  uint64_t seed = strtoull(words[3], NULL, 0) | 1;
  uint64_t snapshots = 0, over = 0, uncharged = 0, most = 0, grants = 0, refusals = 0;
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "2000m", 1);
  workers = shared(WORKERS * sizeof *workers);
  vgpu_region *region = vgpu_region_open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
  if (!region || processes > WORKERS) return 2;
  for (unsigned i = 0; i < processes; i++) start(i, seed + i);
  while (nanoseconds() < until) {
    nap((long)random_below(&seed, 2000000));
    uint64_t sum = held(processes);
    snapshots++;
    over += sum > limit;
    uncharged += sum > charged(region);
    if (sum > most) most = sum;
    unsigned victim = (unsigned)random_below(&seed, processes);
    end(victim);
    start(victim, seed);
    for (unsigned i = 0; i < processes; i++) kill(pids[i], SIGCONT);
  }
  for (unsigned i = 0; i < processes; i++) {
    end(i);
    grants += workers[i].grants;
    refusals += workers[i].refusals;
  }
  bool whole = vgpu_reserve(device(0), limit);
  printf("{\"snapshots\": %llu, \"grants\": %llu, \"refusals\": %llu, \"over\": %llu, "
         "\"uncharged\": %llu, \"most\": %llu, \"high\": %u, \"whole\": %s}\n",
         (unsigned long long)snapshots, (unsigned long long)grants, (unsigned long long)refusals,
         (unsigned long long)over, (unsigned long long)uncharged, (unsigned long long)(most / MIB),
         vgpu_slots_high(region), whole ? "true" : "false");
  return 0;
}

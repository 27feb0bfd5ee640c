/* The cost of the ledger: cost PROCESSES. Prints the time of a reservation with its release, of reading the
 * usage, of a refusal and of attaching, while that many processes are attached and idle. */
#include "common.h"

enum { RUNS = 15, PAIRS = 200000, LOOKS = 20000 };

static int by_size(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* Processor time, because other processes may be running. */
static uint64_t worked(void) {
  struct timespec clock;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &clock);
  return (uint64_t)clock.tv_sec * 1000000000 + (uint64_t)clock.tv_nsec;
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_size);
  return values[count / 2];
}

static void idle(double *attached, uint32_t *count) {
  uint64_t begin = nanoseconds();
  vgpu_ready();
  *attached = (double)(nanoseconds() - begin);
  vgpu_reserve(device(0), MIB);
  __atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
  for (;;) pause();
}

int main(int argc, char **words) {
  if (argc != 2) return 2;
  int others = atoi(words[1]) - 1;
  double *attached = shared(sizeof *attached * VGPU_SLOTS_MAX), pair[RUNS], look[RUNS],
         refusal[RUNS];
  uint32_t *count = shared(sizeof *count);
  pid_t pids[VGPU_SLOTS_MAX];
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "1000m", 1);
  for (int i = 0; i < others; i++) {
    if (!(pids[i] = fork())) idle(&attached[i], count);
    while (__atomic_load_n(count, __ATOMIC_SEQ_CST) <= (uint32_t)i) nap(100000);
  }
  uint64_t begin = nanoseconds();
  int entry = device(0);
  attached[others] = (double)(nanoseconds() - begin);
  vgpu_reserve(entry, MIB); /* so that a request for the whole limit is refused */
  for (int run = 0; run < RUNS; run++) {
    begin = worked();
    for (int i = 0; i < PAIRS; i++) {
      vgpu_reserve(entry, 4096);
      vgpu_release(entry, 4096);
    }
    pair[run] = (double)(worked() - begin) / PAIRS;
    begin = worked();
    for (int i = 0; i < LOOKS; i++) vgpu_used(entry);
    look[run] = (double)(worked() - begin) / LOOKS;
    begin = worked();
    for (int i = 0; i < LOOKS / 10; i++) vgpu_reserve(entry, 1000 * MIB);
    refusal[run] = (double)(worked() - begin) / (LOOKS / 10);
  }
  printf("{\"processes\": %d, \"pair_ns\": %.1f, \"used_ns\": %.1f, \"refusal_ns\": %.0f, "
         "\"attach_us\": %.0f}\n",
         others + 1, median(pair, RUNS), median(look, RUNS), median(refusal, RUNS),
         median(attached, others + 1) / 1000);
  for (int i = 0; i < others; i++) kill(pids[i], SIGKILL);
  return 0;
}

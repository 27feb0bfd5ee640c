/* More processes than a region has slots. Prints each failure. */
#include "common.h"

static uint32_t *held, *refused;

static pid_t holder(void) {
  pid_t pid = fork();
  if (pid) return pid;
  if (!vgpu_reserve(device(0), MIB))
    puts("a process was refused before the region was full"), fflush(stdout);
  __atomic_fetch_add(held, 1, __ATOMIC_SEQ_CST);
  for (;;) pause();
}

static void wait_for(uint32_t count) {
  for (int i = 0; i < 60000 && __atomic_load_n(held, __ATOMIC_SEQ_CST) < count; i++) nap(1000000);
}

static void check(bool good, const char *failure) {
  if (!good) puts(failure), fflush(stdout);
}

/* A process that starts while all slots are owned. It gets memory once a slot is free. */
static pid_t newcomer(void) {
  pid_t pid = fork();
  if (pid) return pid;
  int entry = device(0);
  check(!vgpu_reserve(entry, 1), "memory was given to a process that has no slot");
  check(!vgpu_limit(entry), "the limit contradicts the refusal");
  vgpu_reserve_forced(entry, MIB); /* harmless without a slot, too */
  check(vgpu_used(entry) == VGPU_SLOTS_MAX * MIB + MIB, "the usage is not the sum of all holders");
  __atomic_store_n(refused, 1, __ATOMIC_SEQ_CST);
  bool given = false;
  for (int i = 0; i < 5000 && !given; i++) nap(1000000), given = vgpu_reserve(entry, 1);
  check(given, "no memory was given after a slot was free");
  check(vgpu_used(entry) == VGPU_SLOTS_MAX * MIB + 1, "what was charged without a slot is lost");
  vgpu_release(entry, MIB + 1);
  check(vgpu_used(entry) == (VGPU_SLOTS_MAX - 1) * MIB, "what was charged without a slot stays");
  _exit(0);
}

int main(void) {
  static pid_t pids[VGPU_SLOTS_MAX];
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "1000m", 1);
  held = shared(sizeof *held);
  refused = shared(sizeof *refused);
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++) pids[i] = holder();
  wait_for(VGPU_SLOTS_MAX);
  pid_t late = newcomer();
  for (int i = 0; i < 5000 && !__atomic_load_n(refused, __ATOMIC_SEQ_CST); i++) nap(1000000);
  kill(pids[100], SIGKILL);
  waitpid(pids[100], NULL, 0);
  waitpid(late, NULL, 0);
  pids[100] = holder();
  wait_for(VGPU_SLOTS_MAX + 1);
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++) kill(pids[i], SIGKILL);
  while (wait(NULL) > 0) {
  }
  check(!vgpu_used(device(0)), "dead processes count");
  return 0;
}

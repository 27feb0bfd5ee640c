/* More processes than a region has slots. Prints each failure. */
#include "common.h"

static uint32_t *held;

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

/* Whether a new process may allocate. */
static bool newcomer_may(void) {
  pid_t pid = fork();
  if (!pid) {
    int entry = device(0);
    bool may = vgpu_reserve(entry, 1);
    vgpu_reserve_forced(entry, MIB); /* harmless without a slot, too */
    if (vgpu_used(entry) != VGPU_SLOTS_MAX * MIB + MIB)
      puts("the usage is not the sum of all holders"), fflush(stdout);
    vgpu_release(entry, MIB);
    if (may == !vgpu_limit(entry)) puts("the limit contradicts the refusal"), fflush(stdout);
    _exit(may);
  }
  int status;
  waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

int main(void) {
  static pid_t pids[VGPU_SLOTS_MAX];
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "1000m", 1);
  held = shared(sizeof *held);
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++) pids[i] = holder();
  wait_for(VGPU_SLOTS_MAX);
  if (newcomer_may()) puts("memory was given to a process that has no slot");
  kill(pids[100], SIGKILL);
  waitpid(pids[100], NULL, 0);
  pids[100] = holder();
  wait_for(VGPU_SLOTS_MAX + 1);
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++) kill(pids[i], SIGKILL);
  while (wait(NULL) > 0) {
  }
  if (vgpu_used(device(0))) puts("dead processes count");
  return 0;
}

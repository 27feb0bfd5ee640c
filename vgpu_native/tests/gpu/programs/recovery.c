/* Kill a process that holds nearly all of the limit, and measure the time until another one can have it, 5 s at most.
 *
 *   recovery ROUNDS    prints microseconds from SIGKILL to the first allocation that is granted
 *
 * The children are forked before the driver is used, because it does not survive a fork. */
#include "gpu.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS_MAX = 64 };
static const double US_MAX = 5000000;

static size_t most(void) {
  size_t bytes, total;
  MUST(cuMemGetInfo(&bytes, &total));
  return (bytes - bytes / 8) / (2 * MIB) * (2 * MIB);
}

/* Wait for the command, take the memory, report it, and hold it for ever. */
static void hold(int words, int answers) {
  char byte;
  CUdeviceptr pointer;
  if (read(words, &byte, 1) != 1) _exit(1);
  open_device();
  MUST(cuMemAlloc(&pointer, most()));
  if (write(answers, "r", 1) != 1) _exit(1);
  for (;;) pause();
}

/* The measuring process may fail or be killed meanwhile, so the kernel ends this process with it. */
static void end_with(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(1);
}

static pid_t child(int *words, int *answers) {
  int down[2], up[2];
  if (pipe(down) || pipe(up)) exit(1);
  pid_t parent = getpid(), made = fork();
  if (made < 0) exit(1);
  if (made == 0) {
    end_with(parent);
    close(down[1]);
    close(up[0]);
    hold(down[0], up[1]);
  }
  close(down[0]);
  close(up[1]);
  *words = down[1];
  *answers = up[0];
  return made;
}

static double recovered(pid_t holder, size_t bytes) {
  CUdeviceptr pointer;
  double taken;
  CUresult result;
  uint64_t begun = now();
  kill(holder, SIGKILL);
  do {
    result = cuMemAlloc(&pointer, bytes);
    taken = (double)(now() - begun) / 1000;
  } while (result != CUDA_SUCCESS && taken < US_MAX);
  if (result == CUDA_SUCCESS) MUST(cuMemFree(pointer));
  waitpid(holder, NULL, 0);
  return taken;
}

int main(int count, char **arguments) {
  int rounds = count > 1 ? atoi(arguments[1]) : 5, words[ROUNDS_MAX], answers[ROUNDS_MAX];
  pid_t holders[ROUNDS_MAX];
  if (rounds > ROUNDS_MAX) rounds = ROUNDS_MAX;
  for (int i = 0; i < rounds; i++) holders[i] = child(&words[i], &answers[i]);
  open_device();
  size_t bytes = most();
  for (int i = 0; i < rounds; i++) {
    CUdeviceptr pointer;
    char byte;
    if (write(words[i], "g", 1) != 1 || read(answers[i], &byte, 1) != 1) return 1;
    if (cuMemAlloc(&pointer, bytes) == CUDA_SUCCESS)
      return fprintf(stderr, "the memory was free while it was held: is there a limit?\n"), 1;
    double taken = recovered(holders[i], bytes);
    printf("%.1f\n", taken);
    if (taken >= US_MAX) break; /* the next holder would get nothing */
  }
  return 0;
}

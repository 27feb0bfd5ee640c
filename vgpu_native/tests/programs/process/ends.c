/* Queue kernels that are measured, and end the process in one way while measurements wait to be read:
 *
 *   ends WAY
 *
 * `return` from main, `exit` in another thread, `signal`: exit in a handler that interrupts a launch,
 * `handler`: launches in an exit handler, `fork`: a child ends in the same way, then the parent, `_exit`,
 * `quick`: quick_exit, `idle`: return long after the last launch. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define MUST(call) \
  if ((call) != CUDA_SUCCESS) abort()

static CUfunction function;
static CUstream streams[8];

static void launch(unsigned count) {
  for (unsigned i = 0; i < count; i++)
    MUST(cuLaunchKernel(function, 2000000, 1, 1, 1, 1, 1, 0, streams[i % 8], NULL, NULL));
}

static void begin(void) {
  CUcontext context;
  CUmodule module;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, "anything"));
  MUST(cuModuleGetFunction(&function, module, "nothing"));
  for (int i = 0; i < 8; i++) MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void nap(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }
static void *exit_here(void *nothing) { return exit(0), nothing; }
static void exit_now(int number) { exit(0); }
static void launch_again(void) { launch(20); }

static void launch_until_interrupted(void) {
  struct itimerval soon = {.it_value.tv_usec = 1000 + getpid() % 20 * 1000};
  signal(SIGALRM, exit_now);
  setitimer(ITIMER_REAL, &soon, NULL);
  for (;;) launch(1);
}

static int end_child(void) {
  int status;
  pid_t child = fork();
  if (!child) exit(0);
  if (waitpid(child, &status, 0) != child || status) abort();
  launch(8);
  return 0;
}

int main(int count, char **words) {
  pthread_t thread;
  const char *way = count > 1 ? words[1] : "";
  begin();
  launch(20);
  if (!strcmp(way, "idle")) nap(200);
  if (!strcmp(way, "exit")) pthread_create(&thread, NULL, exit_here, NULL), pause();
  if (!strcmp(way, "signal")) launch_until_interrupted();
  if (!strcmp(way, "handler")) atexit(launch_again);
  if (!strcmp(way, "fork")) return end_child();
  if (!strcmp(way, "_exit")) _exit(0);
  if (!strcmp(way, "quick")) quick_exit(0);
  return 0;
}

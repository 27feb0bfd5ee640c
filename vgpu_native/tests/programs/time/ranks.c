/* Two processes that wait for each other after each kernel share one limit. Prints the percent of the time for which
 * the device was busy, and the milliseconds that the longest launch took.
 *
 *   ranks STEPS NANOSECONDS */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(call) must((call) == CUDA_SUCCESS, #call)

static void must(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "false: %s\n", what);
  exit(1);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static CUfunction kernel;
static uint64_t longest, work;

static void open_device(uint64_t ns) {
  void (*set_ns)(uint64_t);
  CUcontext context;
  CUmodule module;
  *(void **)&set_ns = dlsym(RTLD_DEFAULT, "vgpu_stub_kernel_ns");
  set_ns(ns);
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, "nothing"));
  MUST(cuModuleGetFunction(&kernel, module, "nothing"));
}

static void step(int to, int from) {
  char word = 0;
  uint64_t begun = now();
  MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  if (now() - begun > longest) longest = now() - begun;
  MUST(cuCtxSynchronize());
  must(write(to, &word, 1) == 1 && read(from, &word, 1) == 1, "the other process goes on");
}

static void rank(int steps, uint64_t ns, int to, int from) {
  open_device(ns);
  for (int i = 0; i < steps; i++) step(to, from);
}

int main(int count, char **arguments) {
  if (count < 3) return fprintf(stderr, "usage: ranks STEPS NANOSECONDS\n"), 2;
  int steps = atoi(arguments[1]), ways[2][2], status;
  uint64_t ns = strtoull(arguments[2], NULL, 10), begun = now();
  must(!pipe(ways[0]) && !pipe(ways[1]), "pipes");
  pid_t child = fork();
  if (child) rank(steps, ns, ways[0][1], ways[1][0]);
  else rank(steps, ns, ways[1][1], ways[0][0]);
  if (!child) return 0;
  work = 2 * (uint64_t)steps * ns;
  waitpid(child, &status, 0);
  must(status == 0, "the other process ends");
  printf("%.2f %.0f\n", 100.0 * (double)work / (double)(now() - begun), (double)longest / 1e6);
  return 0;
}

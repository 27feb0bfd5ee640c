/* Launch kernels of one kind in a pattern of lengths, and print the share of the device's time that was used.
 *
 *   patterns WAY SECONDS WARM PERIOD SHORT LONG
 *
 * Of PERIOD launches the last takes LONG nanoseconds, and the others SHORT; with a PERIOD of 1 all take SHORT.
 * `loop` waits for each kernel, `queue` never waits, `fresh-loop` and `fresh-queue` launch each kernel once.
 * Three ways try to have long kernels measured as short ones: in `after-slow` the PERIOD launches after one that
 * took the host long are long; in `refused` all are long after the first hundred, and launches that the driver
 * refuses are tried between them; in `bursts` a hundred long launches follow PERIOD short ones. After WARM
 * seconds prints the percent of SECONDS for which the device was busy. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MUST(call) must(call, #call)
#define SLOW_NS 800 /* a launch that takes the host longer may have been measured */
#define BURST 100

static void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", call, (int)result);
  exit(1);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void (*set_ns)(uint64_t);
static uint64_t (*busy_ns)(int);
static CUfunction kernel;
static CUstream stream;
static const char *way;
static uint64_t period, lengths[2], turn, slow_turn;

static bool is(const char *other) { return !strcmp(way, other); }

static bool is_long(void) {
  uint64_t place = turn++;
  if (is("after-slow")) return turn - slow_turn <= period;
  if (is("refused")) return place >= BURST;
  if (is("bursts")) return place % (period + BURST) >= period;
  return period > 1 && place % period == period - 1;
}

static void load_kernel(void) {
  CUmodule module;
  MUST(cuModuleLoadData(&module, "nothing"));
  MUST(cuModuleGetFunction(&kernel, module, "nothing"));
}

static void try_refused(void) {
  for (int i = 0; i < 4; i++)
    if (cuLaunchKernel(kernel, 1, 0, 1, 1, 1, 1, 0, stream, NULL, NULL) == CUDA_SUCCESS) exit(1);
}

static void step(void) {
  if (!strncmp(way, "fresh", 5)) load_kernel();
  if (is("refused")) try_refused();
  set_ns(lengths[is_long()]);
  uint64_t begun = now();
  MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  if (now() - begun > SLOW_NS) slow_turn = turn;
  if (strstr(way, "loop")) MUST(cuStreamSynchronize(stream));
}

static void for_seconds(double seconds) {
  uint64_t until = now() + (uint64_t)(seconds * 1e9);
  while (now() < until) step();
}

static void open_device(void) {
  CUcontext context;
  *(void **)&set_ns = dlsym(RTLD_DEFAULT, "vgpu_stub_kernel_ns");
  *(void **)&busy_ns = dlsym(RTLD_DEFAULT, "vgpu_stub_busy_ns");
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  load_kernel();
}

int main(int count, char **arguments) {
  if (count < 7) return fprintf(stderr, "usage: patterns WAY SECONDS WARM PERIOD SHORT LONG\n"), 2;
  way = arguments[1];
  period = strtoull(arguments[4], NULL, 10);
  for (int i = 0; i < 2; i++) lengths[i] = strtoull(arguments[5 + i], NULL, 10);
  open_device();
  for_seconds(atof(arguments[3]));
  uint64_t before = busy_ns(0), begun = now();
  for_seconds(atof(arguments[2]));
  printf("%.2f\n", 100.0 * (double)(busy_ns(0) - before) / (double)(now() - begun));
  return 0;
}

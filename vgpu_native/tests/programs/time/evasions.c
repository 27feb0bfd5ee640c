/* Ways of ordinary programs by which kernels were not charged. Prints the percent of the time for which the device
 * was busy.
 *
 *   evasions exit|_exit|kill|killed|contexts|known|unmeasured|handler|blocking NANOSECONDS SECONDS */
#include <cuda.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(call) must((call) == CUDA_SUCCESS, #call)
#define KNOWN_NS 10000 /* the length of kernels whose kind is measured before they are long */
#define KINDS 60

static void (*set_ns)(uint64_t);
static uint64_t (*busy_ns)(int);
static CUcontext context;
static CUstream stream;
static CUfunction kernels[KINDS];
static uint64_t ns, began, busy, length;

static void must(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "false: %s\n", what);
  _exit(1);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static CUfunction load(void) {
  CUmodule module;
  CUfunction kernel;
  MUST(cuModuleLoadData(&module, "nothing"));
  MUST(cuModuleGetFunction(&kernel, module, "nothing"));
  return kernel;
}

static void open_device(void) {
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < KINDS; i++) kernels[i] = load();
}

static void launch(CUfunction kernel, CUstream in, uint64_t takes) {
  set_ns(takes);
  MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, in, NULL, NULL));
}

static void begin(void) {
  busy = busy_ns(0);
  began = now();
}

static int goes_on(void) { return now() - began < length; }

static void report(void) {
  printf("%.2f\n", 100.0 * (double)(busy_ns(0) - busy) / (double)(now() - began));
  fflush(stdout);
}

/* A process makes one launch, waits for it, and ends; or a signal ends it during the last tenth of the kernel. */
static void end_soon(const char *way) {
  open_device();
  launch(kernels[0], stream, ns);
  if (!strcmp(way, "killed")) ualarm((useconds_t)(ns / 1000 * 9 / 10), 0);
  MUST(cuStreamSynchronize(stream));
  if (!strcmp(way, "exit")) exit(0);
  if (!strcmp(way, "_exit")) _exit(0);
  kill(getpid(), SIGKILL);
}

static void short_processes(const char *way) {
  for (begin(); goes_on();) {
    pid_t child = fork();
    if (!child) end_soon(way);
    waitpid(child, NULL, 0);
  }
}

/* Make kinds known as short. */
static void know(int kinds, int launches) {
  open_device();
  for (int kind = 0; kind < kinds; kind++) {
    for (int i = 0; i < launches; i++) {
      launch(kernels[kind], stream, KNOWN_NS);
      if (i % 16 == 0) MUST(cuStreamSynchronize(stream));
    }
  }
  MUST(cuStreamSynchronize(stream));
  usleep(100000);
}

/* Each launch of a known kind is in a context of its own, which is destroyed at once. */
static void contexts(void) {
  know(1, 2);
  for (begin(); goes_on();) {
    CUcontext own;
    CUstream in;
    MUST(cuCtxCreate(&own, NULL, 0, 0));
    MUST(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
    launch(kernels[0], in, ns);
    MUST(cuCtxDestroy(own));
    MUST(cuCtxSetCurrent(context));
  }
}

/* Kinds are known as short, and then each is long once. */
static void known(int launches) {
  know(KINDS, launches);
  begin();
  for (int i = 0; i < KINDS && goes_on(); i++) {
    launch(kernels[i], stream, ns);
    MUST(cuStreamSynchronize(stream));
  }
}

static void each_new(void) {
  for (begin(); goes_on();) {
    launch(load(), stream, ns);
    MUST(cuStreamSynchronize(stream));
  }
}

static void blocking(void) {
  open_device();
  each_new();
}

/* An exit handler that is registered before the driver's runs after the library's. */
static void handler(void) {
  each_new();
  report();
}

int main(int count, char **arguments) {
  if (count < 4) return fprintf(stderr, "usage: evasions WAY NANOSECONDS SECONDS\n"), 2;
  const char *way = arguments[1];
  *(void **)&set_ns = dlsym(RTLD_DEFAULT, "vgpu_stub_kernel_ns");
  *(void **)&busy_ns = dlsym(RTLD_DEFAULT, "vgpu_stub_busy_ns");
  ns = strtoull(arguments[2], NULL, 10);
  length = (uint64_t)(atof(arguments[3]) * 1e9);
  if (!strcmp(way, "handler")) {
    must(!atexit(handler), "a handler");
    know(1, 1);
    exit(0);
  }
  if (!strcmp(way, "contexts")) contexts();
  else if (!strcmp(way, "known")) known(2);
  else if (!strcmp(way, "unmeasured")) known(300);
  else if (!strcmp(way, "blocking")) blocking();
  else short_processes(way);
  report();
  return 0;
}

/* Helpers of the programs that measure on a GPU. They use only the driver, so that the same binary runs with
 * and without libvgpu.so, on a GPU or the stub. They run with drivers from 470 on: a newer function is looked
 * up by its name, and never linked. */
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

/* End the program with the name of the call and its error, which the script puts into the verdict. */
#define MUST(call) must(call, #call)

static inline const char *name_of(CUresult result) {
  const char *name = NULL;
  cuGetErrorName(result, &name);
  return name ? name : "unknown";
}

static inline void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %s (%d)\n", call, name_of(result), (int)result);
  exit(1);
}

static inline uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* A function of the driver that older ones lack, NULL if this one does. */
static inline void *newer(const char *name) { return dlsym(RTLD_DEFAULT, name); }

/* Make the first device's primary context current, as the runtime API does. */
static inline CUdevice open_device(void) {
  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  return device;
}

/* `work` repeats a step that depends on the one before, so that its length does not depend on a timer's
 * resolution nor on the time slices of others. If `sums` is not 0, it adds there its nanoseconds, one, and
 * the last value. The driver compiles it, so that no compiler for CUDA is needed. */
static const char KERNELS[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry nothing() { ret; }\n"
    ".visible .entry work(.param .u64 turns, .param .u64 sums) {\n"
    "  .reg .u64 %begin, %end, %left, %sums;\n"
    "  .reg .u32 %value;\n"
    "  .reg .pred %more, %none;\n"
    "  ld.param.u64 %left, [turns];\n"
    "  ld.param.u64 %sums, [sums];\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "  mov.u32 %value, %clock;\n"
    "again:\n"
    "  mad.lo.u32 %value, %value, 1664525, 1013904223;\n"
    "  sub.u64 %left, %left, 1;\n"
    "  setp.ne.u64 %more, %left, 0;\n"
    "  @%more bra again;\n"
    "  setp.eq.u64 %none, %sums, 0;\n"
    "  @%none bra done;\n"
    "  mov.u64 %end, %globaltimer;\n"
    "  sub.u64 %end, %end, %begin;\n"
    "  red.global.add.u64 [%sums], %end;\n"
    "  red.global.add.u64 [%sums+8], 1;\n"
    "  st.global.u32 [%sums+16], %value;\n"
    "done:\n"
    "  ret;\n"
    "}\n";

static inline CUfunction function_of(const char *text, const char *name) {
  CUmodule module;
  CUfunction function;
  MUST(cuModuleLoadData(&module, text));
  MUST(cuModuleGetFunction(&function, module, name));
  return function;
}

static inline CUfunction kernel(const char *name) { return function_of(KERNELS, name); }

/* Steps of `work` in a microsecond, as `probe` measured them. The stub ignores them. */
static inline uint64_t turns_of(uint64_t ns) {
  const char *text = getenv("GPU_CHECK_TURNS");
  double each = text ? atof(text) : 100;
  uint64_t turns = (uint64_t)((double)ns / 1000 * each);
  return turns ? turns : 1;
}

/* Set the length of the next launches on the stub; without effect on a GPU. */
static inline void set_stub_length(uint64_t ns) {
  static void (*set_ns)(uint64_t);
  static int looked;
  if (!looked++) set_ns = (void (*)(uint64_t))newer("vgpu_stub_kernel_ns");
  if (set_ns) set_ns(ns);
}

/* Queue one `work` of a length. */
static inline CUresult launch_work(CUfunction work, uint64_t ns, CUdeviceptr sums, CUstream stream) {
  uint64_t turns = turns_of(ns);
  void *parameters[] = {&turns, &sums};
  set_stub_length(ns);
  return cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* Print a step with the bytes that the driver's calls count as used and in total, then wait for a line from the script,
 * which reads NVML meanwhile. */
static inline void step(const char *name, CUresult result) {
  size_t left = 0, total = 0;
  char line[64];
  CUcontext context = NULL;
  if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context) cuMemGetInfo(&left, &total);
  printf("step\t%s\t%zu\t%zu\t%d\t%s\n", name, total - left, total, (int)result, name_of(result));
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) exit(1);
}

/* Helpers of the programs that measure on a GPU. They use only the driver, so that the same binary runs with
 * and without libvgpu.so, on a GPU or the stub. */
#pragma once

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MIB (1024ull * 1024)

/* End the program with the name of the call and its error. */
#define MUST(call) must(call, #call)

static inline void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  const char *name = NULL;
  cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s (%d)\n", call, name ? name : "unknown", (int)result);
  exit(1);
}

static inline uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

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

/* Two kernels: one that does nothing, and one that keeps one multiprocessor busy for a number of
 * nanoseconds. The driver compiles them, so that no compiler for CUDA is needed. */
static const char KERNELS[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    ".visible .entry nothing() { ret; }\n"
    ".visible .entry spin(.param .u64 nanoseconds) {\n"
    "  .reg .u64 %begin, %time, %wanted;\n"
    "  .reg .pred %more;\n"
    "  ld.param.u64 %wanted, [nanoseconds];\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "again:\n"
    "  mov.u64 %time, %globaltimer;\n"
    "  sub.u64 %time, %time, %begin;\n"
    "  setp.lt.u64 %more, %time, %wanted;\n"
    "  @%more bra again;\n"
    "  ret;\n"
    "}\n";

static inline CUfunction kernel(const char *name) {
  CUmodule module;
  CUfunction function;
  MUST(cuModuleLoadData(&module, KERNELS));
  MUST(cuModuleGetFunction(&function, module, name));
  return function;
}

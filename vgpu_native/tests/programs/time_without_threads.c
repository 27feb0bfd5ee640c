/* Launch in two contexts, one after the other, while no thread can be started. The library then reads samples
 * in the launching thread, and must restore its context. */
#include <cuda.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 20 };

#define MUST(call) must((call) == CUDA_SUCCESS, #call)

static void must(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "false: %s\n", what);
  exit(1);
}

/* Replaces the C library's function in all libraries. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *argument) {
  return EAGAIN;
}

static CUcontext make(CUdevice device) {
  CUcontext context;
  CUctxCreateParams parameters = {0};
  MUST(cuCtxCreate(&context, &parameters, 0, device));
  return context;
}

static void launch_in(CUcontext context, CUfunction kernel) {
  CUcontext now;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  MUST(cuCtxSetCurrent(context));
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  MUST(cuCtxGetCurrent(&now));
  must(now == context, "the context is the same after a launch");
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  must(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "the mode of captures is the same after a launch");
}

int main(void) {
  CUmodule module;
  CUfunction kernel[2];
  MUST(cuInit(0));
  CUcontext contexts[2];
  for (int i = 0; i < 2; i++) {
    contexts[i] = make(0);
    MUST(cuModuleLoadData(&module, "module"));
    MUST(cuModuleGetFunction(&kernel[i], module, "kernel"));
  }
  for (int i = 0; i < ROUNDS; i++) launch_in(contexts[i % 2], kernel[i % 2]);
  return 0;
}

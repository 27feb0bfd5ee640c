/* Launch a kernel 1000 times, and print how often the driver was asked for anything else meanwhile. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../stub/vgpu_stub.h"

#define MUST(call) \
  if ((call) != CUDA_SUCCESS) abort()

static const char *const questions[] = {"cuCtxGetDevice", "cuCtxGetCurrent", "cuDeviceGetUuid_v2",
                                        "cuStreamIsCapturing", "cuEventRecord", "cuEventQuery"};

static unsigned long asked(void) {
  unsigned long count = 0;
  for (unsigned i = 0; i < sizeof questions / sizeof *questions; i++)
    count += (unsigned long)vgpu_stub_calls(questions[i]);
  return count;
}

int main(void) {
  CUcontext context;
  CUmodule module;
  CUfunction function;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, "anything"));
  MUST(cuModuleGetFunction(&function, module, "nothing"));
  for (int i = 0; i < 8; i++) MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  unsigned long before = asked();
  for (int i = 0; i < 1000; i++) MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  printf("%lu\n", asked() - before);
  return 0;
}

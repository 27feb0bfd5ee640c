/* Rules of memory that ends with a context in a way that the library cannot see. */
#pragma once

#include "rules.h"

static CUgreenCtx green_context(CUcontext *context) {
  CUdevResource whole = {.type = CU_DEV_RESOURCE_TYPE_SM};
  CUdevResourceDesc desc;
  CUgreenCtx green;
  OK(cuDeviceGetDevResource(0, &whole, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevResourceGenerateDesc(&desc, &whole, 1));
  OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuCtxFromGreenCtx(context, green));
  return green;
}

/* The memory ends with the green context, or is kept for the primary one: what the driver has is charged. */
static void green_memory(void) {
  CUcontext primary, context;
  struct taken left;
  OK(cuCtxGetCurrent(&primary));
  CUgreenCtx green = green_context(&context);
  OK(cuCtxSetCurrent(context));
  CHECK(take(by("linear"), 20 * MIB, &some));
  CHECK(take(by("linear"), 10 * MIB, &left));
  CHECK(take(by("array"), 10 * MIB, &other));
  OK(cuCtxSetCurrent(primary));
  CHECK(charged() == physical() && physical() >= 40 * MIB);
  OK(cuGreenCtxDestroy(green));
  CHECK(charged() == physical());
  if (physical()) {
    give(&some);
    CHECK(charged() == physical());
    OK(cuCtxSetCurrent(primary));
    CHECK(take(by("linear"), 20 * MIB, &some));
  }
  OK(cuDevicePrimaryCtxReset_v2(0));
  begin(0);
  CHECK(physical() == 0 && charged() == 0);
}

/* With contexts of 20 MiB and modules of 3 MiB: what they take is charged while they live. */
static void context_sizes(void) {
  CUcontext primary, more[8];
  CUmodule module;
  CUlibrary library;
  size_t heap;
  unsigned count = 0;
  OK(cuCtxGetCurrent(&primary));
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
  OK(cuModuleLoadData(&module, "image"));
  OK(cuLibraryLoadData(&library, "image", NULL, NULL, 0, NULL, NULL, 0));
  CHECK(charged() == 26 * MIB && physical() == 26 * MIB);
  OK(cuModuleUnload(module));
  OK(cuLibraryUnload(library));
  OK(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 30 * MIB));
  CHECK(charged() == 50 * MIB && physical() == 50 * MIB);
  CHECK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 81 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap));
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
  while (count < 8 && cuCtxCreate_v2(&more[count], 0, 0) == CUDA_SUCCESS) count++;
  CHECK(count == 4 && charged() == 100 * MIB && physical() == 100 * MIB);
  CHECK(cuModuleLoadData(&module, "image") == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(physical() == 100 * MIB);
  while (count) OK(cuCtxDestroy_v2(more[--count]));
  OK(cuCtxSetCurrent(primary));
  OK(cuModuleLoadData(&module, "image"));
  CUgreenCtx green = green_context(&more[0]);
  CHECK(charged() == 43 * MIB && physical() == 43 * MIB);
  OK(cuGreenCtxDestroy(green));
  OK(cuDevicePrimaryCtxReset_v2(0));
  begin(0);
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
}

/* The limits page exempts them. */
static void contexts_exempt(void) {
  CUmodule module;
  OK(cuModuleLoadData(&module, "image"));
  OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 90 * MIB));
  CHECK(charged() == 0 && physical() > 100 * MIB);
  CHECK(take(by("linear"), 100 * MIB, &some));
}

/* A statically linked call retained the primary context. */
static void unseen_primary(void) {
  CUresult (*unseen)(CUcontext *, CUdevice) =
      (CUresult(*)(CUcontext *, CUdevice))(uintptr_t)vgpu_stub_address("cuDevicePrimaryCtxRetain");
  CUcontext primary;
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(unseen(&primary, 0));
  OK(cuCtxSetCurrent(primary));
  CHECK(take(by("linear"), 60 * MIB, &some));
  CHECK(take(by("array"), 10 * MIB, &other));
  OK(cuDevicePrimaryCtxReset_v2(0));
  begin(0);
  CHECK(take(by("linear"), 90 * MIB, &some));
  CHECK(charged() == 90 * MIB && physical() == 90 * MIB);
}

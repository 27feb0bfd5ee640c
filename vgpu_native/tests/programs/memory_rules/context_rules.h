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
  OK(cuCtxGetCurrent(&primary));
  CUgreenCtx green = green_context(&context);
  OK(cuCtxSetCurrent(context));
  CHECK(take(by("linear"), 20 * MIB, &some));
  CHECK(take(by("array"), 10 * MIB, &other));
  OK(cuCtxSetCurrent(primary));
  CHECK(charged() == physical() && physical() >= 30 * MIB);
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

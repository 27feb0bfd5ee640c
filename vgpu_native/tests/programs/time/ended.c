/* Contexts end behind the library's back, while launches in them are measured. Later launches are measured all the
 * same, and no event of an ended context is used more than twice.
 *
 *   ended destroy|green|reset    how they end */
#include <unistd.h>

#include "../allocators.h"

#define ROUNDS 150 /* each leaves samples behind, of which there are 256 */
#define IN_EACH 3

static const char *way;

/* The driver's own function, that no hook sees. */
static void *own(const char *name) {
  return (void *)(uintptr_t)vgpu_stub_address(name);
}

static uint64_t measurements(void) {
  return vgpu_stub_calls("cuEventElapsedTime_v2") + vgpu_stub_calls("cuEventElapsedTime");
}

/* Each module has a kind of its own, whose first launch is measured. */
static void launch_new(void) {
  CUmodule module;
  CUfunction kernel;
  OK(cuModuleLoadData(&module, "module"));
  OK(cuModuleGetFunction(&kernel, module, "kernel"));
  OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static void in_context(void) {
  CUcontext context;
  CUresult (*destroy)(CUcontext), (*reset)(CUdevice);
  *(void **)&destroy = own("cuCtxDestroy_v2");
  *(void **)&reset = own("cuDevicePrimaryCtxReset_v2");
  if (!strcmp(way, "reset")) {
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
  } else {
    OK(cuCtxCreate_v2(&context, 0, 0));
  }
  for (int i = 0; i < IN_EACH; i++) launch_new();
  OK(!strcmp(way, "reset") ? reset(0) : destroy(context));
}

static void in_green_context(void) {
  CUdevResource all;
  CUdevResourceDesc part;
  CUgreenCtx green;
  CUcontext context;
  CUresult (*destroy)(CUgreenCtx);
  *(void **)&destroy = own("cuGreenCtxDestroy");
  OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  OK(cuDevResourceGenerateDesc(&part, &all, 1));
  OK(cuGreenCtxCreate(&green, part, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  OK(cuCtxFromGreenCtx(&context, green));
  OK(cuCtxSetCurrent(context));
  for (int i = 0; i < IN_EACH; i++) launch_new();
  OK(destroy(green));
}

int main(int count, char **arguments) {
  way = count > 1 ? arguments[1] : "destroy";
  OK(cuInit(0));
  for (int i = 0; i < ROUNDS; i++) !strcmp(way, "green") ? in_green_context() : in_context();
  uint64_t uses = vgpu_stub_dead_uses();
  begin(0);
  uint64_t before = measurements();
  for (int i = 0; i < 20; i++) launch_new();
  settle();
  usleep(50000);
  uint64_t measured = measurements() - before;
  printf("%d measurements, %d uses of ended contexts\n", (int)measured, (int)uses);
  CHECK(measured >= 20);
  CHECK(uses <= 2 * ROUNDS * IN_EACH);
  return 0;
}

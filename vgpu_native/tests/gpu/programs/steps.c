/* Take and give back memory step by step; the script compares the driver's count with NVML's at each.
 *
 *   steps SCENARIO [NUMBER]
 *
 * Scenarios: `context`, `pieces`, `arrays`, `heaps`, `globals`, `pools`, `free-async`, `fill`. After
 * each step it prints a line and waits for one (see `step`). */
#include "gpu.h"

enum { PIECES_MAX = 4096, STREAMS = 32 };
static CUdeviceptr pieces[PIECES_MAX];
static int number;

static void take_pieces(size_t bytes, int count, const char *name) {
  CUresult result = CUDA_SUCCESS;
  int taken = 0;
  while (taken < count && (result = cuMemAlloc(&pieces[taken], bytes)) == CUDA_SUCCESS) taken++;
  step(name, result);
  while (taken) MUST(cuMemFree(pieces[--taken]));
  step("freed", CUDA_SUCCESS);
}

static void take_all_pieces(void) {
  open_device();
  step("context", CUDA_SUCCESS);
  int count = number && number < PIECES_MAX ? number : 1000;
  take_pieces(2 * MIB + 512, count, "pieces of 2 MiB + 512 B");
  take_pieces(1 * MIB + 512, count, "pieces of 1 MiB + 512 B");
  take_pieces(512, count, "pieces of 512 B");
}

/* Sizes that no driver stores without padding. */
static void take_arrays(void) {
  static CUarray arrays[256];
  int count = number && number < 256 ? number : 64, taken = 0;
  CUDA_ARRAY3D_DESCRIPTOR deep = {130, 67, 35, CU_AD_FORMAT_FLOAT, 4, 0}, flat = {1025, 513, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
  CUresult result = CUDA_SUCCESS;
  open_device();
  step("context", CUDA_SUCCESS);
  while (taken < count && (result = cuArray3DCreate(&arrays[taken], &deep)) == CUDA_SUCCESS) taken++;
  step("3D arrays", result);
  while (taken) MUST(cuArrayDestroy(arrays[--taken]));
  step("freed", CUDA_SUCCESS);
  while (taken < count && (result = cuArray3DCreate(&arrays[taken], &flat)) == CUDA_SUCCESS) taken++;
  step("2D arrays", result);
  while (taken) MUST(cuArrayDestroy(arrays[--taken]));
  step("freed", CUDA_SUCCESS);
}

static void make_context(void) {
  static CUstream streams[STREAMS];
  CUresult (*create)(CUcontext *, unsigned, CUdevice) = newer("cuCtxCreate_v2");
  CUcontext other, popped;
  step("start", CUDA_SUCCESS);
  CUdevice device = open_device();
  step("context", CUDA_SUCCESS);
  CUfunction work = kernel("work");
  MUST(launch_work(work, 1000, 0, 0));
  MUST(cuCtxSynchronize());
  step("module", CUDA_SUCCESS);
  for (int i = 0; i < STREAMS; i++) MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < STREAMS; i++) MUST(launch_work(work, 1000, 0, streams[i]));
  MUST(cuCtxSynchronize());
  step("32 streams", CUDA_SUCCESS);
  CUresult result = create ? create(&other, 0, device) : CUDA_ERROR_NOT_FOUND;
  step("second context", result);
  if (result == CUDA_SUCCESS) {
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuCtxDestroy(other));
  }
  step("second context ended", CUDA_SUCCESS);
}

/* A kernel that calls malloc gets its heap when it is loaded or first launched. */
static const char HEAP[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".extern .func (.param .b64 result) malloc(.param .b64 size);\n"
    ".visible .entry heap(.param .u64 into) {\n"
    "  .reg .u64 %size, %at, %into;\n  .reg .pred %null;\n  .param .b64 asked;\n  .param .b64 given;\n"
    "  ld.param.u64 %into, [into];\n  mov.u64 %size, 1024;\n  st.param.b64 [asked], %size;\n"
    "  call (given), malloc, (asked);\n  ld.param.b64 %at, [given];\n  setp.eq.u64 %null, %into, 0;\n"
    "  @%null bra done;\n  st.global.u64 [%into], %at;\ndone:\n  ret;\n}\n";

static CUresult launch_heap(void) {
  CUdeviceptr into = 0;
  void *parameters[] = {&into};
  CUmodule module;
  CUfunction heap;
  CUresult result = cuModuleLoadData(&module, HEAP);
  if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&heap, module, "heap");
  set_stub_length(1000);
  if (result == CUDA_SUCCESS) result = cuLaunchKernel(heap, 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL);
  return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

static void raise_limits(void) {
  open_device();
  step("context", CUDA_SUCCESS);
  CUresult result = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 512 * MIB);
  step("heap of 512 MiB", result == CUDA_SUCCESS ? launch_heap() : result);
  result = cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 256 * MIB);
  step("printf buffer of 256 MiB", result == CUDA_SUCCESS ? launch_heap() : result);
  result = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192);
  step("stacks of 8 KiB", result == CUDA_SUCCESS ? launch_heap() : result);
}

static const char GLOBALS[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .global .align 16 .b8 big[536870912];\n"
    ".visible .entry touch() {\n  .reg .u64 %at;\n  .reg .u32 %value;\n  mov.u64 %at, big;\n"
    "  cvta.global.u64 %at, %at;\n  mov.u32 %value, %clock;\n  st.u32 [%at], %value;\n  ret;\n}\n";

static void load_globals(void) {
  CUmodule module;
  CUfunction touch;
  open_device();
  step("context", CUDA_SUCCESS);
  CUresult result = cuModuleLoadData(&module, GLOBALS);
  if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&touch, module, "touch");
  set_stub_length(1000);
  if (result == CUDA_SUCCESS) result = cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
  if (result == CUDA_SUCCESS) result = cuCtxSynchronize();
  step(".global array of 512 MiB", result);
}

static size_t left(void) {
  size_t bytes, total;
  MUST(cuMemGetInfo(&bytes, &total));
  return bytes;
}

/* Leave 80 MiB of the limit to a pool, take them in pieces of 4 MiB, then free and trim. */
static void fill_pool(void) {
  CUdeviceptr rest;
  CUmemoryPool pool;
  CUresult result;
  int taken = 0;
  CUdevice device = open_device();
  step("context", CUDA_SUCCESS);
  if (left() < 80 * MIB) exit(1);
  MUST(cuMemAlloc(&rest, left() - 80 * MIB));
  step("all but 80 MiB", CUDA_SUCCESS);
  while (taken < 64 && (result = cuMemAllocAsync(&pieces[taken], 4 * MIB, 0)) == CUDA_SUCCESS) taken++;
  MUST(cuStreamSynchronize(0));
  printf("given_mib\t%d\n", 4 * taken);
  step("pool full", result);
  while (taken) MUST(cuMemFreeAsync(pieces[--taken], 0));
  MUST(cuStreamSynchronize(0));
  MUST(cuDeviceGetDefaultMemPool(&pool, device));
  MUST(cuMemPoolTrimTo(pool, 0));
  step("pool trimmed", CUDA_SUCCESS);
}

/* Memory that is freed behind a kernel of 400 ms is in use until that has ended. */
static void free_behind_kernel(void) {
  CUdeviceptr first, second;
  CUfunction work;
  CUmemoryPool pool;
  CUdevice device = open_device();
  work = kernel("work");
  MUST(cuDeviceGetDefaultMemPool(&pool, device));
  step("context", CUDA_SUCCESS);
  size_t bytes = (left() * 2 / 3) / (32 * MIB) * (32 * MIB);
  MUST(cuMemAllocAsync(&first, bytes, 0));
  MUST(cuStreamSynchronize(0));
  step("two thirds in the pool", CUDA_SUCCESS);
  MUST(launch_work(work, 400000000, 0, 0));
  MUST(cuMemFreeAsync(first, 0));
  step("freed behind a kernel", CUDA_SUCCESS);
  CUresult result = cuMemAlloc(&second, bytes);
  step("asked again, linear", result);
  MUST(cuStreamSynchronize(0));
  MUST(cuMemPoolTrimTo(pool, 0));
  if (result != CUDA_SUCCESS) result = cuMemAlloc(&second, bytes);
  step("asked after the kernel", result);
  if (result != CUDA_SUCCESS) return;
  MUST(launch_work(work, 400000000, 0, 0));
  result = cuMemFreeAsync(second, 0);
  step("linear, freed behind a kernel", result);
  MUST(cuStreamSynchronize(0));
}

/* Take up to NUMBER pieces until one is refused, and hold them: several processes do this at once. */
static void fill(void) {
  int taken = 0;
  CUresult result = CUDA_SUCCESS;
  open_device();
  step("context", CUDA_SUCCESS);
  int most = number && number < PIECES_MAX ? number : PIECES_MAX;
  while (taken < most && (result = cuMemAlloc(&pieces[taken], 16 * MIB)) == CUDA_SUCCESS) taken++;
  printf("given_mib\t%d\n", 16 * taken);
  step("full", result);
}

int main(int count, char **arguments) {
  static const struct { const char *name; void (*run)(void); } scenarios[] = {
      {"context", make_context}, {"pieces", take_all_pieces}, {"arrays", take_arrays},
      {"heaps", raise_limits}, {"globals", load_globals}, {"pools", fill_pool},
      {"free-async", free_behind_kernel}, {"fill", fill},
  };
  if (count > 2) number = atoi(arguments[2]);
  for (unsigned i = 0; count > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
    if (!strcmp(arguments[1], scenarios[i].name)) return scenarios[i].run(), 0;
  return fprintf(stderr, "usage: steps SCENARIO [NUMBER]\n"), 2;
}

/* memory_rules RULE: check one rule of charges, under a limit of 100 MiB. */
#include <unistd.h>

#include "memory_rules/context_rules.h"
#include "memory_rules/granule_rules.h"
#include "memory_rules/graph_rules.h"
#include "memory_rules/rules.h"

static void info(void) {
  size_t free = 1, total = 1, all;
  unsigned free_v1, total_v1, all_v1;
  OK(cuMemGetInfo_v2(NULL, &total));
  OK(cuMemGetInfo_v2(&free, NULL));
  OK(cuMemGetInfo_v2(NULL, NULL));
  CHECK(free == 100 * MIB && total == 100 * MIB);
  OK(cuDeviceTotalMem_v2(&all, 0));
  CHECK(all == 100 * MIB);
  /* The first versions are not in every driver. */
  if (cuDeviceTotalMem(&all_v1, 0) == CUDA_SUCCESS && cuMemGetInfo(&free_v1, &total_v1) == CUDA_SUCCESS) {
    CHECK(all_v1 == 100 * MIB && free_v1 == 100 * MIB && total_v1 == 100 * MIB);
  }
  CHECK(cuDeviceTotalMem_v2(&all, 99) == CUDA_ERROR_INVALID_DEVICE);
  OK(cuCtxSetCurrent(NULL));
  CHECK(cuMemGetInfo_v2(&free, &total) == CUDA_ERROR_INVALID_CONTEXT);
  CUdeviceptr pointer;
  CHECK(cuMemAlloc_v2(&pointer, MIB) == CUDA_ERROR_INVALID_CONTEXT);
}

static void absurd(void) {
  CUdeviceptr pointer;
  size_t pitch;
  CUarray array;
  CHECK(cuMemAlloc_v2(&pointer, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc_v2(NULL, MIB) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc_v2(&pointer, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAllocManaged(&pointer, SIZE_MAX - 100, 1) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAllocPitch_v2(&pointer, &pitch, SIZE_MAX / 2, 4, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAllocPitch_v2(&pointer, &pitch, 1ULL << 32, 1ULL << 32, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAllocAsync(&pointer, SIZE_MAX, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAllocAsync(NULL, MIB, NULL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuArrayCreate_v2(&array, NULL) != CUDA_SUCCESS);
  CHECK(cuArray3DCreate_v2(&array, NULL) != CUDA_SUCCESS);
  CHECK(cuMemUnmap(0x1000, SIZE_MAX) != CUDA_SUCCESS);
  CHECK(cuMemUnmap(SIZE_MAX - MIB, 4 * MIB) != CUDA_SUCCESS);
  CHECK(charged() == 0 && physical() == 0);
}

static void unknown(void) {
  CHECK(take(by("linear"), 10 * MIB, &some));
  CHECK(cuMemFree_v2(some.handle + 512) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree_v2(0x1234) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(0));
  CHECK(cuArrayDestroy((CUarray)NULL) != CUDA_SUCCESS);
  CHECK(charged() == 10 * MIB);
  vgpu_stub_fail("cuMemFree_v2", 1, CUDA_ERROR_UNKNOWN);
  CHECK(cuMemFree_v2(some.handle) == CUDA_ERROR_UNKNOWN);
  CHECK(charged() == 10 * MIB);
  give(&some);
  CHECK(cuMemFree_v2(some.handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(charged() == 0);
}

/* A driver that is out of memory within the limit may still have to free a dead process's memory. */
static void late_driver(void) {
  vgpu_stub_fail("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(take(by("linear"), 10 * MIB, &some));
  vgpu_stub_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(take(by("handle"), 10 * MIB, &other));
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
}

static void pitch(void) {
  CUdeviceptr pointer;
  size_t pitch;
  /* Rows of 4 bytes take 512 each. */
  CHECK(cuMemAllocPitch_v2(&pointer, &pitch, 4, 1 << 20, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAllocPitch_v2(&pointer, &pitch, 4, 100000, 4));
  CHECK(charged() == 512 * 100000 && charged() == physical());
  OK(cuMemFree_v2(pointer));
  CHECK(charged() == 0);
}

/* The memory that a pool keeps is charged, and not its allocations. */
static void pools(void) {
  cuuint64_t all = UINT64_MAX;
  CUmemoryPool pool = pool_of_mine();
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CHECK(take(by("pool"), 40 * MIB, &some));
  CHECK(charged() == 64 * MIB);
  give(&some);
  settle();
  CHECK(charged() == 64 * MIB && physical() == 64 * MIB);
  CHECK(take(by("pool"), 60 * MIB, &some));
  CHECK(charged() == 64 * MIB);
  give(&some);
  OK(cuMemPoolTrimTo(pool, 0));
  CHECK(charged() == 0 && physical() == 0);
  /* A request that does not fit is refused before the driver is called, so it never took more. */
  cuuint64_t most;
  CHECK(take(by("pool"), 60 * MIB, &some));
  CHECK(!take(by("pool"), 40 * MIB, &other));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &most));
  CHECK(most == 64 * MIB);
  give(&some);
  /* The same for a request that would fit, when the driver's step does not. */
  CHECK(take(by("pool"), 94 * MIB, &some));
  CHECK(!take(by("pool"), 3 * MIB, &other));
  CHECK(take(by("pool"), 2 * MIB, &other));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &most));
  CHECK(most == 96 * MIB);
  give(&other);
  give(&some);
  /* A pool gives unused memory back for other allocations. */
  CHECK(take(by("pool"), 40 * MIB, &some));
  give(&some);
  CHECK(take(by("linear"), 90 * MIB, &other));
  CHECK(charged() == 90 * MIB);
  CHECK(!take(by("pool"), 11 * MIB, &some));
  give(&other);
  /* A destroyed pool lives as long as its allocations. */
  CHECK(take(by("pool"), 40 * MIB, &some));
  OK(cuMemPoolDestroy(pool));
  CHECK(charged() >= 40 * MIB && charged() >= physical());
  give(&some);
  CHECK(charged() == 0 && physical() == 0);
}

static void current_pool(void) {
  CUmemoryPool pool = pool_of_mine(), before;
  OK(cuDeviceGetMemPool(&before, 0));
  OK(cuDeviceSetMemPool(0, pool));
  CHECK(take(by("async"), 40 * MIB, &some));
  CHECK(!take(by("async"), 60 * MIB, &other));
  CHECK(charged() == 64 * MIB);
  OK(cuDeviceSetMemPool(0, before));
  OK(cuMemFree_v2(some.handle));
  settle();
  CHECK(charged() == 0 && physical() == 0);
}

/* The stream decides the device, and not the current context. */
static void stream_of_other_device(void) {
  CUstream stream;
  CUcontext first, second;
  CUdeviceptr pointer;
  OK(cuCtxGetCurrent(&first));
  second = begin(1);
  OK(cuStreamCreate(&stream, 0));
  OK(cuCtxSetCurrent(first));
  OK(cuMemAllocAsync(&pointer, 20 * MIB, stream));
  CHECK(charged() == 0 && physical() == 0);
  OK(cuCtxSetCurrent(second));
  CHECK(charged() == 32 * MIB && physical() == 32 * MIB);
}

/* A library that calls the driver's own function frees counted memory without a hook. */
static void address_anew(void) {
  CUdeviceptr pointer, again;
  CUresult (*unseen)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))(uintptr_t)vgpu_stub_address("cuMemFree_v2");
  OK(cuMemAlloc_v2(&pointer, 10 * MIB));
  OK(unseen(pointer));
  OK(cuMemAlloc_v2(&again, 10 * MIB));
  CHECK(again == pointer && charged() == 10 * MIB);
  OK(cuMemFree_v2(again));
  CHECK(charged() == 0 && physical() == 0);
}

/* An address of a pool is returned for another one, after a free that no hook saw. */
static void address_of_other_pool(void) {
  CUresult (*unseen)(CUdeviceptr, CUstream) =
      (CUresult(*)(CUdeviceptr, CUstream))(uintptr_t)vgpu_stub_address("cuMemFreeAsync");
  CUmemoryPool pool = pool_of_mine();
  CHECK(take(by("async"), 10 * MIB, &some));
  OK(unseen(some.handle, NULL));
  CHECK(take(by("pool"), 10 * MIB, &other));
  CHECK(other.handle == some.handle);
  OK(cuMemPoolDestroy(pool));
  CHECK(charged() >= physical() && physical() >= 10 * MIB);
  give(&other);
  settle();
  CHECK(charged() == 0 && physical() == 0);
}

/* Memory of cuMemAlloc that is freed behind a kernel of 200 ms is in use until then. The array of its context stays. */
static void freed_in_order(void) {
  CUmodule module;
  CUfunction function;
  struct taken array;
  CHECK(take(by("array"), 20 * MIB, &array));
  CHECK(take(by("linear"), 60 * MIB, &some));
  OK(cuModuleLoadData(&module, "image"));
  OK(cuModuleGetFunction(&function, module, "kernel"));
  vgpu_stub_kernel_ns(200000000);
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  OK(cuMemFreeAsync(some.handle, NULL));
  CHECK(!take(by("linear"), 60 * MIB, &other));
  CHECK(charged() >= physical() && physical() == 80 * MIB);
  OK(cuCtxSynchronize());
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
  CHECK(take(by("linear"), 80 * MIB, &other));
}

/* An array into which memory is mapped has none of its own. */
static void array_without_memory(void) {
  CUarray array;
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT,
                                   .NumChannels = 4, .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING};
  OK(cuArray3DCreate_v2(&array, &shape));
  CHECK(charged() == 0 && physical() == 0);
  OK(cuArrayDestroy(array));
}

/* Memory of a handle ends with the last reference: creation, retains, imports and mappings. */
static void handles(void) {
  CUmemGenericAllocationHandle handle, again;
  CUdeviceptr at;
  CHECK(take(by("handle"), 40 * MIB, &some));
  handle = some.handle;
  OK(cuMemAddressReserve(&at, 80 * MIB, 0, 0, 0));
  OK(cuMemMap(at, 40 * MIB, 0, handle, 0));
  OK(cuMemMap(at + 40 * MIB, 40 * MIB, 0, handle, 0));
  OK(cuMemRelease(handle));
  CHECK(charged() == 40 * MIB);
  OK(cuMemRetainAllocationHandle(&again, (void *)at));
  OK(cuMemUnmap(at, 80 * MIB));
  CHECK(charged() == 40 * MIB && physical() == 40 * MIB);
  vgpu_stub_fail("cuMemRelease", 1, CUDA_ERROR_UNKNOWN);
  CHECK(cuMemRelease(again) == CUDA_ERROR_UNKNOWN);
  CHECK(charged() == 40 * MIB);
  OK(cuMemRelease(again));
  CHECK(charged() == 0 && physical() == 0);
}

static void many_mappings(void) {
  enum { MAPPINGS = 45 };
  CUdeviceptr at;
  OK(cuMemAddressReserve(&at, MAPPINGS * 2 * MIB, 0, 0, 0));
  for (unsigned i = 0; i < MAPPINGS; i++) {
    CHECK(take(by("handle"), 2 * MIB, &some));
    OK(cuMemMap(at + i * 2 * MIB, 2 * MIB, 0, some.handle, 0));
    OK(cuMemRelease(some.handle));
  }
  CHECK(charged() == MAPPINGS * 2 * MIB && physical() == charged());
  vgpu_stub_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
  CHECK(cuMemUnmap(at, MAPPINGS * 2 * MIB) == CUDA_ERROR_UNKNOWN);
  CHECK(charged() == MAPPINGS * 2 * MIB);
  OK(cuMemUnmap(at, MAPPINGS * 2 * MIB));
  CHECK(charged() == 0 && physical() == 0);
}

/* The properties decide the device, and not the current context. */
static void handle_of_other_device(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
  OK(cuMemCreate(&handle, 20 * MIB, &prop, 0));
  CHECK(charged() == 0);
  begin(1);
  CHECK(charged() == 20 * MIB);
}

static void exported(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  CUmemGenericAllocationHandle handle, imported;
  int file;
  OK(cuMemCreate(&handle, 20 * MIB, &prop, 0));
  OK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)file,
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  CHECK(charged() == 20 * MIB);
  OK(cuMemRelease(imported));
  CHECK(charged() == 20 * MIB);
  OK(cuMemRelease(handle));
  CHECK(charged() == 0 && physical() == 0);
}

static void contexts(void) {
  CUcontext context, primary;
  OK(cuCtxGetCurrent(&primary));
  OK(cuCtxCreate_v2(&context, 0, 0));
  CHECK(take(by("linear"), 20 * MIB, &some));
  CHECK(take(by("array"), 20 * MIB, &other));
  CHECK(charged() >= 40 * MIB);
  OK(cuCtxDestroy_v2(context));
  OK(cuCtxSetCurrent(primary));
  CHECK(charged() == 0);
  CHECK(take(by("linear"), 20 * MIB, &some));
  give(&some);
  CHECK(take(by("linear"), 20 * MIB, &some));
  begin(0);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(charged() == 20 * MIB);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  begin(0);
  CHECK(charged() == 0);
  CHECK(take(by("linear"), 20 * MIB, &some));
  OK(cuDevicePrimaryCtxReset_v2(0));
  begin(0);
  CHECK(charged() == 0);
}

/* An allocation belongs to the current context, by all ways that make one current. */
static void context_now(void) {
  CUcontext first, second;
  OK(cuCtxGetCurrent(&first));
  CHECK(take(by("linear"), 10 * MIB, &some));
  OK(cuCtxCreate_v2(&second, 0, 0));
  CHECK(take(by("linear"), 20 * MIB, &other));
  OK(cuCtxSetCurrent(first));
  CHECK(take(by("linear"), 5 * MIB, &some));
  OK(cuCtxPushCurrent_v2(second));
  CHECK(take(by("linear"), 30 * MIB, &other));
  OK(cuCtxPopCurrent_v2(NULL));
  CHECK(take(by("linear"), 2 * MIB, &some));
  OK(cuCtxDestroy_v2(second));
  CHECK(charged() == 17 * MIB && physical() == 17 * MIB);
}

/* With VGPU_STUB_CONTEXT_ANEW another context may get the address of the primary one. */
static void context_anew(void) {
  CUcontext primary, context;
  OK(cuCtxGetCurrent(&primary));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuCtxCreate_v2(&context, 0, 0));
  CHECK(context == primary);
  CHECK(take(by("linear"), 20 * MIB, &some));
  OK(cuDevicePrimaryCtxReset_v2(0)); /* of none */
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
  give(&some);
  CHECK(charged() == 0 && physical() == 0);
}

/* Memory of the host is not charged. */
static void host(void) {
  void *memory;
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}};
  OK(cuMemAllocHost_v2(&memory, 200 * MIB));
  OK(cuMemFreeHost(memory));
  OK(cuMemHostAlloc(&memory, 200 * MIB, 0));
  if (cuMemCreate(&handle, 200 * MIB, &prop, 0) == CUDA_SUCCESS) OK(cuMemRelease(handle));
  CHECK(charged() == 0);
}

static const struct rule {
  const char *name;
  void (*check)(void);
} rules[] = {{"info", info},
             {"absurd", absurd},
             {"unknown", unknown},
             {"late-driver", late_driver},
             {"pitch", pitch},
             {"pools", pools},
             {"current-pool", current_pool},
             {"stream-of-other-device", stream_of_other_device},
             {"capture", capture},
             {"capture-near-limit", capture_near_limit},
             {"capture-from-pool", capture_from_pool},
             {"graphs", graphs},
             {"graphs-in-turn", graphs_in_turn},
             {"graph-unread", graph_unread},
             {"graph-of-two-devices", graph_of_two_devices},
             {"address-anew", address_anew},
             {"array-without-memory", array_without_memory},
             {"handles", handles},
             {"many-mappings", many_mappings},
             {"handle-of-other-device", handle_of_other_device},
             {"exported", exported},
             {"contexts", contexts},
             {"context-now", context_now},
             {"context-anew", context_anew},
             {"host", host},
             {"address-of-other-pool", address_of_other_pool},
             {"freed-in-order", freed_in_order},
             {"green-memory", green_memory},
             {"unseen-primary", unseen_primary},
             {"context-sizes", context_sizes},
             {"contexts-exempt", contexts_exempt},
             {"granules", granules_linear},
             {"small-holes", small_holes},
             {"last-block", last_block},
             {"pages-of-arrays", pages_of_arrays},
             {"growth", growth},
             {"graph-growth", graph_growth}};

int main(int count, char **arguments) {
  CHECK(count == 2);
  const struct rule *rule = rules;
  while (strcmp(rule->name, arguments[1])) CHECK(++rule < rules + sizeof rules / sizeof *rules);
  begin(0);
  rule->check();
  return 0;
}

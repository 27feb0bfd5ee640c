#include "allocators.h"

/* The bytes of a row of arrays and of pitched memory, which no driver rounds. */
enum { ROW = 512 * 1024 };
static const size_t GRANULE = 2 * MIB;
/* The step by which pools and graphs grow. */
static const size_t POOLED = 32 * MIB;

static CUdevice here(void) {
  CUdevice device;
  MUST(cuCtxGetDevice(&device));
  return device;
}

static void give_pointer(struct taken *taken) { MUST(cuMemFree(taken->pointer)); }

static CUresult take_plain(size_t bytes, struct taken *taken) {
  return cuMemAlloc(&taken->pointer, bytes);
}

static CUresult take_pitched(size_t bytes, struct taken *taken) {
  size_t pitch;
  return cuMemAllocPitch(&taken->pointer, &pitch, ROW, bytes / ROW, 16);
}

static CUresult take_managed(size_t bytes, struct taken *taken) {
  return cuMemAllocManaged(&taken->pointer, bytes, CU_MEM_ATTACH_GLOBAL);
}

/* A pool keeps its memory unless it is trimmed after all work of the stream has ended. */
static void trim(CUmemoryPool pool) {
  MUST(cuStreamSynchronize(0));
  MUST(cuMemPoolTrimTo(pool, 0));
}

static CUresult take_async(size_t bytes, struct taken *taken) {
  CUresult result = cuMemAllocAsync(&taken->pointer, bytes, 0);
  return result == CUDA_SUCCESS ? cuStreamSynchronize(0) : result;
}

static void give_async(struct taken *taken) {
  CUmemoryPool pool;
  MUST(cuMemFreeAsync(taken->pointer, 0));
  MUST(cuDeviceGetDefaultMemPool(&pool, here()));
  trim(pool);
}

static CUmemoryPool own_pool(void) {
  static CUmemoryPool pool;
  if (pool) return pool;
  CUmemPoolProps wanted = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                           .location = {CU_MEM_LOCATION_TYPE_DEVICE, {here()}}};
  MUST(cuMemPoolCreate(&pool, &wanted));
  return pool;
}

static CUresult take_pooled(size_t bytes, struct taken *taken) {
  CUresult result = cuMemAllocFromPoolAsync(&taken->pointer, bytes, own_pool(), 0);
  return result == CUDA_SUCCESS ? cuStreamSynchronize(0) : result;
}

static void give_pooled(struct taken *taken) {
  MUST(cuMemFreeAsync(taken->pointer, 0));
  trim(own_pool());
}

static CUresult take_created(size_t bytes, struct taken *taken) {
  CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, {here()}}};
  taken->bytes = bytes;
  return cuMemCreate(&taken->handle, bytes, &wanted, 0);
}

static void give_created(struct taken *taken) { MUST(cuMemRelease(taken->handle)); }

/* The mapping keeps the memory when its handle is released, as in many programs. */
static CUresult take_mapped(size_t bytes, struct taken *taken) {
  CUresult result = take_created(bytes, taken);
  if (result != CUDA_SUCCESS) return result;
  MUST(cuMemAddressReserve(&taken->pointer, bytes, 0, 0, 0));
  MUST(cuMemMap(taken->pointer, bytes, 0, taken->handle, 0));
  MUST(cuMemRelease(taken->handle));
  return CUDA_SUCCESS;
}

static void give_mapped(struct taken *taken) {
  MUST(cuMemUnmap(taken->pointer, taken->bytes));
  MUST(cuMemAddressFree(taken->pointer, taken->bytes));
}

static CUresult take_array(size_t bytes, struct taken *taken) {
  CUDA_ARRAY_DESCRIPTOR wanted = {ROW / 16, bytes / ROW, CU_AD_FORMAT_FLOAT, 4};
  return cuArrayCreate(&taken->array, &wanted);
}

static CUresult take_array3d(size_t bytes, struct taken *taken) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {1024, 32, bytes / ROW, CU_AD_FORMAT_FLOAT, 4, 0};
  return cuArray3DCreate(&taken->array, &wanted);
}

static void give_array(struct taken *taken) { MUST(cuArrayDestroy(taken->array)); }

static CUresult take_mipmapped(size_t bytes, struct taken *taken) {
  CUDA_ARRAY3D_DESCRIPTOR wanted = {ROW / 16, bytes / ROW, 0, CU_AD_FORMAT_FLOAT, 4, 0};
  return cuMipmappedArrayCreate(&taken->mipmap, &wanted, 1);
}

static void give_mipmapped(struct taken *taken) { MUST(cuMipmappedArrayDestroy(taken->mipmap)); }

static CUresult take_in_graph(size_t bytes, struct taken *taken) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec ready;
  CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
      .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, {here()}}},
      .bytesize = bytes};
  MUST(cuGraphCreate(&graph, 0));
  CUresult result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted);
  if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&ready, graph, 0);
  if (result == CUDA_SUCCESS) {
    result = cuGraphLaunch(ready, 0);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(0);
    MUST(cuGraphExecDestroy(ready));
  }
  MUST(cuGraphDestroy(graph));
  taken->pointer = wanted.dptr;
  return result;
}

static void give_in_graph(struct taken *taken) {
  MUST(cuMemFree(taken->pointer));
  MUST(cuDeviceGraphMemTrim(here()));
}

const struct allocator *allocators(void) {
  static struct allocator all[] = {
      {"cuMemAlloc", 0, take_plain, give_pointer},
      {"cuMemAllocPitch", 0, take_pitched, give_pointer},
      {"cuMemAllocManaged", 0, take_managed, give_pointer},
      {"cuMemAllocAsync", 1, take_async, give_async},
      {"cuMemAllocFromPoolAsync", 1, take_pooled, give_pooled},
      {"cuMemCreate", 0, take_created, give_created},
      {"cuMemCreate, mapped and released", 0, take_mapped, give_mapped},
      {"cuArrayCreate", 0, take_array, give_array},
      {"cuArray3DCreate", 0, take_array3d, give_array},
      {"cuMipmappedArrayCreate", 0, take_mipmapped, give_mipmapped},
      {"cuGraphAddMemAllocNode", 1, take_in_graph, give_in_graph},
      {NULL, 0, NULL, NULL},
  };
  for (struct allocator *one = all; one->name; one++)
    if (one->granule < 2) one->granule = one->granule ? POOLED : GRANULE;
  return all;
}

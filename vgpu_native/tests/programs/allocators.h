/* All allocators of device memory, in one form for the tests of memory. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stub/vgpu_stub.h"

#define MIB (1ULL << 20)

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: false: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

#define OK(call)                                                                          \
  do {                                                                                    \
    CUresult answer_ = (call);                                                            \
    if (answer_ != CUDA_SUCCESS) {                                                        \
      fprintf(stderr, "%s:%d: %s returned %d\n", __FILE__, __LINE__, #call, (int)answer_); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

struct taken {
  const struct allocator *by;
  uint64_t handle, address, size;
};

struct allocator {
  const char *name;
  const char *function; /* the driver's function that allocates */
  uint64_t step;        /* the smallest step of bytes */
  CUresult (*take)(uint64_t bytes, struct taken *taken);
  CUresult (*give)(struct taken *taken);
};

static CUdevice device_now(void) {
  CUdevice device;
  OK(cuCtxGetDevice(&device));
  return device;
}

/* Bytes of the current device that the library reports as used, and that the stub has allocated. */
__attribute__((unused)) static uint64_t charged(void) {
  size_t free, total;
  OK(cuMemGetInfo_v2(&free, &total));
  return total - free;
}

__attribute__((unused)) static uint64_t physical(void) { return vgpu_stub_used(device_now()); }

static CUresult take_linear(uint64_t bytes, struct taken *taken) {
  return cuMemAlloc_v2((CUdeviceptr *)&taken->handle, bytes);
}

static CUresult take_managed(uint64_t bytes, struct taken *taken) {
  return cuMemAllocManaged((CUdeviceptr *)&taken->handle, bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult take_pitch(uint64_t bytes, struct taken *taken) {
  size_t pitch;
  return cuMemAllocPitch_v2((CUdeviceptr *)&taken->handle, &pitch, 300, (bytes + 511) / 512, 4);
}

static CUresult give_linear(struct taken *taken) { return cuMemFree_v2(taken->handle); }

static CUresult take_async(uint64_t bytes, struct taken *taken) {
  return cuMemAllocAsync((CUdeviceptr *)&taken->handle, bytes, NULL);
}

static CUresult take_async_ptsz(uint64_t bytes, struct taken *taken) {
  return cuMemAllocAsync_ptsz((CUdeviceptr *)&taken->handle, bytes, NULL);
}

static CUresult give_async(struct taken *taken) { return cuMemFreeAsync(taken->handle, NULL); }

static CUresult give_async_ptsz(struct taken *taken) { return cuMemFreeAsync_ptsz(taken->handle, NULL); }

static CUmemoryPool pool_of_mine(void) {
  static CUmemoryPool pool[16];
  CUdevice device = device_now();
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  if (!pool[device]) OK(cuMemPoolCreate(&pool[device], &props));
  return pool[device];
}

static CUresult take_pool(uint64_t bytes, struct taken *taken) {
  return cuMemAllocFromPoolAsync((CUdeviceptr *)&taken->handle, bytes, pool_of_mine(), NULL);
}

static CUresult take_pool_ptsz(uint64_t bytes, struct taken *taken) {
  return cuMemAllocFromPoolAsync_ptsz((CUdeviceptr *)&taken->handle, bytes, pool_of_mine(), NULL);
}

static CUresult create(uint64_t bytes, struct taken *taken) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_now()}};
  taken->size = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
  return cuMemCreate((CUmemGenericAllocationHandle *)&taken->handle, taken->size, &prop, 0);
}

static CUresult give_handle(struct taken *taken) { return cuMemRelease(taken->handle); }

/* As NVIDIA's samples do: map the memory, and release the handle; the mapping keeps the memory. */
static CUresult take_mapped(uint64_t bytes, struct taken *taken) {
  CUresult result = create(bytes, taken);
  if (result != CUDA_SUCCESS) return result;
  OK(cuMemAddressReserve((CUdeviceptr *)&taken->address, taken->size, 0, 0, 0));
  OK(cuMemMap(taken->address, taken->size, 0, taken->handle, 0));
  OK(cuMemRelease(taken->handle));
  return result;
}

static CUresult give_mapped(struct taken *taken) {
  CUresult result = cuMemUnmap(taken->address, taken->size);
  if (result == CUDA_SUCCESS) OK(cuMemAddressFree(taken->address, taken->size));
  return result;
}

static CUresult take_array(uint64_t bytes, struct taken *taken) {
  CUDA_ARRAY_DESCRIPTOR shape = {256, (bytes + 1023) / 1024, CU_AD_FORMAT_FLOAT, 1};
  return cuArrayCreate_v2((CUarray *)&taken->handle, &shape);
}

static CUresult take_array3(uint64_t bytes, struct taken *taken) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {64, 64, (bytes + 65535) / 65536, CU_AD_FORMAT_FLOAT, 4, 0};
  return cuArray3DCreate_v2((CUarray *)&taken->handle, &shape);
}

static CUresult give_array(struct taken *taken) { return cuArrayDestroy((CUarray)taken->handle); }

static CUresult take_mipmapped(uint64_t bytes, struct taken *taken) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {256, (bytes + 1023) / 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  return cuMipmappedArrayCreate((CUmipmappedArray *)&taken->handle, &shape, 4);
}

static CUresult give_mipmapped(struct taken *taken) {
  return cuMipmappedArrayDestroy((CUmipmappedArray)taken->handle);
}

/* A graph that allocates and frees; the device keeps its memory until it is trimmed. */
__attribute__((unused)) static CUresult graph_with(uint64_t bytes, CUgraphExec *exec) {
  CUgraph graph;
  CUgraphNode allocates, frees;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {
      .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_now()}},
      .bytesize = bytes};
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemAllocNode(&allocates, graph, NULL, 0, &params));
  OK(cuGraphAddMemFreeNode(&frees, graph, &allocates, 1, params.dptr));
  CUresult result = cuGraphInstantiateWithFlags(exec, graph, 0);
  OK(cuGraphDestroy(graph));
  return result;
}

static const struct allocator allocators[] = {
    {"linear", "cuMemAlloc_v2", 512, take_linear, give_linear},
    {"managed", "cuMemAllocManaged", 65536, take_managed, give_linear},
    {"pitch", "cuMemAllocPitch_v2", 512, take_pitch, give_linear},
    {"async", "cuMemAllocAsync", 32 * MIB, take_async, give_async},
    {"async-ptsz", "cuMemAllocAsync_ptsz", 32 * MIB, take_async_ptsz, give_async_ptsz},
    {"async-freed-at-once", "cuMemAllocAsync", 32 * MIB, take_async, give_linear},
    {"pool", "cuMemAllocFromPoolAsync", 32 * MIB, take_pool, give_async},
    {"pool-ptsz", "cuMemAllocFromPoolAsync_ptsz", 32 * MIB, take_pool_ptsz, give_async_ptsz},
    {"handle", "cuMemCreate", 2 * MIB, create, give_handle},
    {"mapped", "cuMemCreate", 2 * MIB, take_mapped, give_mapped},
    {"array", "cuArrayCreate_v2", 65536, take_array, give_array},
    {"array3", "cuArray3DCreate_v2", 65536, take_array3, give_array},
    {"mipmapped", "cuMipmappedArrayCreate", 262144, take_mipmapped, give_mipmapped},
};
#define ALLOCATORS (sizeof allocators / sizeof *allocators)

/* Take bytes. False: out of memory. Any other result is an error. */
__attribute__((unused)) static bool take(const struct allocator *by, uint64_t bytes, struct taken *taken) {
  *taken = (struct taken){.by = by};
  CUresult result = by->take(bytes, taken);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) OK(result);
  return result == CUDA_SUCCESS;
}

__attribute__((unused)) static void give(struct taken *taken) { OK(taken->by->give(taken)); }

/* Let streams end and pools shrink. */
__attribute__((unused)) static void settle(void) { OK(cuCtxSynchronize()); }

/* Initialise the driver, and make a device's context the current one. */
__attribute__((unused)) static CUcontext begin(int ordinal) {
  CUdevice device;
  CUcontext context;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, ordinal));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  return context;
}

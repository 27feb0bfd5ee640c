/* The rules of memory_rules.c about captures and graphs. */
#pragma once

#include "rules.h"

static void capture(void) {
  CUstream stream;
  CUdeviceptr pointer;
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamCreate(&stream, 0));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&pointer, 60 * MIB, stream));
  OK(cuMemFreeAsync(pointer, stream));
  OK(cuStreamEndCapture(stream, &graph));
  CHECK(charged() == 0);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, stream));
  CHECK(charged() >= physical() && physical() >= 60 * MIB && charged() <= 100 * MIB);
  OK(cuGraphExecDestroy(exec));
  OK(cuDeviceGraphMemTrim(0));
  CHECK(charged() == 0 && physical() == 0);
}

static CUgraphExec captured(uint64_t bytes, CUmemoryPool pool, CUdeviceptr *pointer) {
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamCreate(&stream, 0));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  if (pool) OK(cuMemAllocFromPoolAsync(pointer, bytes, pool, stream));
  else OK(cuMemAllocAsync(pointer, bytes, stream));
  CHECK(cuMemFreeAsync(some.handle, stream) == CUDA_ERROR_INVALID_VALUE); /* no graph's */
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  return exec;
}

/* A capture allocates nothing, so it needs no room, and leaves nothing charged. Launches do. */
static void capture_near_limit(void) {
  CUdeviceptr pointer;
  CHECK(take(by("linear"), 90 * MIB, &some));
  CUgraphExec exec = captured(60 * MIB, NULL, &pointer);
  CHECK(charged() == 90 * MIB);
  CHECK(cuGraphLaunch(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  give(&some);
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, NULL));
  CHECK(charged() == 60 * MIB && physical() == 60 * MIB);
  OK(cuMemFreeAsync(pointer, NULL));
  OK(cuDeviceGraphMemTrim(0));
  CHECK(charged() == 0 && physical() == 0);
}

/* Memory that is captured from a pool belongs to the graph, and does not keep the pool. */
static void capture_from_pool(void) {
  CUdeviceptr pointer;
  cuuint64_t all = UINT64_MAX;
  CUmemoryPool pool = pool_of_mine();
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CHECK(take(by("pool"), 20 * MIB, &some));
  CUgraphExec exec = captured(20 * MIB, pool, &pointer);
  CHECK(charged() == 32 * MIB && physical() == 32 * MIB);
  OK(cuGraphLaunch(exec, NULL));
  CHECK(charged() == 52 * MIB && physical() == 52 * MIB);
  give(&some);
  OK(cuMemPoolDestroy(pool));
  CHECK(charged() == 20 * MIB && physical() == 20 * MIB);
  OK(cuMemFree_v2(pointer));
  OK(cuGraphExecDestroy(exec));
  OK(cuDeviceGraphMemTrim(0));
  CHECK(charged() == 0 && physical() == 0);
}

static void graphs(void) {
  CUgraphExec small, large;
  OK(graph_with(60 * MIB, &small));
  OK(graph_with(120 * MIB, &large));
  CHECK(cuGraphLaunch(large, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuGraphLaunch_ptsz(large, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuGraphUpload(large, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(charged() == 0 && physical() == 0);
  for (int i = 0; i < 5; i++) {
    OK(cuGraphLaunch(small, NULL));
    CHECK(charged() >= 60 * MIB && charged() >= physical() && charged() <= 100 * MIB);
  }
  CHECK(!take(by("linear"), 50 * MIB, &some));
  vgpu_stub_fail("cuGraphLaunch", 1, CUDA_ERROR_UNKNOWN);
  CHECK(cuGraphLaunch(small, NULL) == CUDA_ERROR_UNKNOWN);
  CHECK(charged() >= 60 * MIB && charged() >= physical());
  OK(cuDeviceGraphMemTrim(0));
  CHECK(charged() == physical());
  OK(cuGraphExecDestroy(large));
  OK(cuGraphExecDestroy(small));
  OK(cuDeviceGraphMemTrim(0));
  CHECK(charged() == 0 && physical() == 0);
  CHECK(take(by("linear"), 90 * MIB, &some));
  OK(graph_with(60 * MIB, &small));
  CHECK(cuGraphLaunch(small, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  give(&some);
  OK(cuGraphLaunch(small, NULL));
}

/* Another graph may have the memory of a graph's last launch, so that the next launch takes more. */
static void graphs_in_turn(void) {
  CUdeviceptr first, second;
  CUgraphExec one = captured(40 * MIB, NULL, &first), other = captured(40 * MIB, NULL, &second);
  OK(cuGraphLaunch(one, NULL));
  OK(cuMemFree_v2(first));
  OK(cuGraphLaunch(other, NULL));
  CHECK(charged() == 40 * MIB && physical() == 40 * MIB);
  CHECK(take(by("linear"), 40 * MIB, &some));
  for (int i = 0; i < 3; i++) CHECK(cuGraphLaunch(one, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(charged() == 80 * MIB && physical() == 80 * MIB);
  give(&some);
  OK(cuGraphLaunch(one, NULL));
  CHECK(charged() == 80 * MIB && physical() == 80 * MIB);
}

/* A graph that cannot be read may need any amount. */
static void graph_unread(void) {
  CUgraphExec exec;
  static const char *const reads[] = {"cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphMemAllocNodeGetParams"};
  for (unsigned i = 0; i < sizeof reads / sizeof *reads; i++) {
    vgpu_stub_fail(reads[i], 1, CUDA_ERROR_UNKNOWN);
    OK(graph_with(120 * MIB, &exec));
    CHECK(cuGraphLaunch(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuGraphExecDestroy(exec));
  }
  CHECK(cuGraphInstantiateWithFlags(&exec, NULL, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(charged() == 0 && physical() == 0);
}

static CUresult allocates_of(CUgraph graph, int device, uint64_t bytes) {
  CUgraphNode node;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {
      .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
      .bytesize = bytes};
  return cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
}

/* The reservation on one device is given back when the other device has no room. */
static void graph_of_two_devices(void) {
  CUgraph graph;
  CUgraphExec exec;
  OK(cuGraphCreate(&graph, 0));
  OK(allocates_of(graph, 0, 60 * MIB));
  OK(allocates_of(graph, 1, 120 * MIB));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  for (int i = 0; i < 3; i++) CHECK(cuGraphLaunch(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(charged() == 0 && physical() == 0);
}

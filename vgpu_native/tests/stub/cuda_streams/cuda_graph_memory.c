/* Memory that graphs allocate. Each card has one pool for it, which grows when a graph is launched
 * and shrinks only when it is trimmed. */
#include "cuda_graph.h"

#include <string.h>

static struct { uint64_t used, used_high, reserved, reserved_high; } pool[STUB_DEVICES];

void stub_forget_graph_memory(void)
{
  memset(pool, 0, sizeof pool);
}

CUresult stub_graph_alloc(CUgraph graph, int device, uint64_t bytes, CUdeviceptr *at, CUgraphNode *node)
{
  stub_lock_objects();
  struct stub_block *block = stub_block_make(bytes, BLOCK_GRAPH, false);
  if (block) block->device = device;
  stub_unlock_objects();
  if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
  *at = block->at;
  return stub_graph_add(graph, (struct CUgraphNode_st){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .at = *at}, node);
}

CUresult stub_graph_free(CUgraph graph, CUdeviceptr at, CUgraphNode *node)
{
  return stub_graph_add(graph, (struct CUgraphNode_st){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .at = at}, node);
}

bool stub_graph_memory_live(CUdeviceptr at)
{
  struct stub_block *block = stub_block_find(at);
  return block && block->live;
}

bool stub_graph_memory_begin(CUdeviceptr at)
{
  struct stub_block *block = stub_block_find(at);
  if (!block || block->live) return false;
  int device = block->device;
  uint64_t used = pool[device].used + block->size, wanted = round_up(used, stub_step(STEP_GRAPH));
  if (wanted > pool[device].reserved) {
    if (!stub_take(device, wanted - pool[device].reserved)) return false;
    pool[device].reserved = wanted;
  }
  pool[device].used = used;
  block->live = true;
  if (used > pool[device].used_high) pool[device].used_high = used;
  if (pool[device].reserved > pool[device].reserved_high) pool[device].reserved_high = pool[device].reserved;
  return true;
}

void stub_graph_memory_end(CUdeviceptr at)
{
  struct stub_block *block = stub_block_find(at);
  if (!block || !block->live) return;
  block->live = false;
  if (block->kind == BLOCK_GRAPH) pool[block->device].used -= block->size;
  else stub_release_block(block);
}

/* cuMemFree of a graph's memory; the graph keeps the address. */
CUresult stub_graph_release(struct stub_block *block)
{
  if (!block->live) return CUDA_ERROR_INVALID_VALUE;
  stub_graph_memory_end(block->at);
  return CUDA_SUCCESS;
}

CUresult stub_cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  if (!node || !params || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  struct stub_block *block = stub_block_find(node->at);
  *params = (CUDA_MEM_ALLOC_NODE_PARAMS){.dptr = node->at};
  params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params->poolProps.location.id = block ? block->device : 0;
  params->bytesize = block ? block->size : 0;
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

CUresult stub_cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *at)
{
  if (!node || !at || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE) return CUDA_ERROR_INVALID_VALUE;
  *at = node->at;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGraphMemTrim(CUdevice device)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock_objects();
  uint64_t keep = round_up(pool[device].used, stub_step(STEP_GRAPH));
  stub_give(device, pool[device].reserved - keep);
  pool[device].reserved = keep;
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void *value)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
  case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: *(cuuint64_t *)value = pool[device].used; break;
  case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: *(cuuint64_t *)value = pool[device].used_high; break;
  case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: *(cuuint64_t *)value = pool[device].reserved; break;
  case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: *(cuuint64_t *)value = pool[device].reserved_high; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void *value)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || *(cuuint64_t *)value) return CUDA_ERROR_INVALID_VALUE;
  if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) pool[device].used_high = pool[device].used;
  else if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) pool[device].reserved_high = pool[device].reserved;
  else return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

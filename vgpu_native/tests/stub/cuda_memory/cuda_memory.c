/* Memory that is allocated and freed immediately: of the card, pitched, managed, of the host. */
#include "cuda_stub.h"

#include <stdlib.h>

static CUresult allocate(CUdeviceptr *at, uint64_t size, enum stub_kind kind, uint64_t bytes)
{
  CUcontext now = stub_context();
  if (!now) return CUDA_ERROR_INVALID_CONTEXT;
  STUB_UNSAFE;
  if (!at || !size) return CUDA_ERROR_INVALID_VALUE;
  bool small = kind == BLOCK_DEVICE && stub_in_window(size);
  if (small) bytes = 0;
  if (!stub_take(now->device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  stub_lock_objects();
  stub_free_in_order();
  struct stub_block *block = stub_block_make(size, kind, kind == BLOCK_MANAGED || kind == BLOCK_HOST);
  if (block) {
    block->bytes = bytes;
    block->device = now->device;
    block->context = stub_memory_context();
    block->small = small;
    if (small && !stub_window_enter(block)) stub_block_free(block), block = NULL;
    else *at = block->at;
  }
  stub_unlock_objects();
  if (!block) stub_give(now->device, bytes);
  return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuMemAlloc_v2(CUdeviceptr *at, size_t size)
{
  if (size > 1ull << 40) return stub_context() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT;
  return allocate(at, size, BLOCK_DEVICE, stub_linear_bytes(size));
}

CUresult stub_cuMemAllocPitch_v2(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element)
{
  if (!pitch || !width || !height) return CUDA_ERROR_INVALID_VALUE;
  if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
  uint64_t real = round_up(width, 512), bytes;
  if (width > 1ull << 40 || __builtin_mul_overflow(real, height, &bytes) || bytes > 1ull << 40)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(at, bytes, BLOCK_DEVICE, stub_linear_bytes(bytes));
  if (result == CUDA_SUCCESS) *pitch = real;
  return result;
}

/* Managed memory lies on the card while that has room, and beyond it on the host. */
CUresult stub_cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned flags)
{
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  if (size > 1ull << 40) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = allocate(at, size, BLOCK_MANAGED, round_up(size, size > STUB_SMALL ? stub_step(STEP_MANAGED) : 65536));
  return result == CUDA_ERROR_OUT_OF_MEMORY ? allocate(at, size, BLOCK_MANAGED, 0) : result;
}

CUresult stub_release_block(struct stub_block *block)
{
  if (block->kind == BLOCK_POOL) {
    stub_pool_give(block->pool, block->bytes);
  } else if (block->kind == BLOCK_GRAPH) {
    return stub_graph_release(block);
  } else if (block->small) {
    stub_window_leave(block);
  } else if (block->share >= 0) {
    stub_drop(block->share);
  } else if (block->bytes) {
    stub_give(block->device, block->bytes);
  }
  stub_block_free(block);
  return CUDA_SUCCESS;
}

static void free_if_reached(struct stub_block *block, void *now)
{
  if (block->freed_at && block->freed_at <= *(uint64_t *)now) stub_release_block(block);
}

void stub_free_in_order(void)
{
  uint64_t now = stub_now();
  if (stub_setting("VGPU_STUB_FREE_IN_ORDER", 0)) stub_blocks_each(free_if_reached, &now);
}

/* cuMemFree frees all memory of cuMemAlloc and similar functions, of pools and of graphs. */
static bool can_be_freed(const struct stub_block *block)
{
  return block->kind == BLOCK_DEVICE || block->kind == BLOCK_MANAGED || block->kind == BLOCK_POOL ||
         block->kind == BLOCK_EXTERNAL || block->kind == BLOCK_GRAPH;
}

CUresult stub_cuMemFree_v2(CUdeviceptr at)
{
  if (!at) return CUDA_SUCCESS;
  STUB_UNSAFE;
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  bool ours = block && block->at == at && can_be_freed(block);
  CUresult result = ours ? stub_release_block(block) : CUDA_ERROR_INVALID_VALUE;
  stub_unlock_objects();
  return result;
}

CUresult stub_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
  int device = stub_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t size = stub_state()->device[device].size;
  stub_lock_objects();
  stub_free_in_order();
  stub_unlock_objects();
  if (free_bytes) *free_bytes = size - stub_used(0, device);
  if (total) *total = size;
  return CUDA_SUCCESS;
}

CUresult stub_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  if (block && base) *base = block->at;
  if (block && size) *size = block->size;
  stub_unlock_objects();
  return block ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult host(void **at, size_t size)
{
  CUdeviceptr found;
  CUresult result = at ? allocate(&found, size, BLOCK_HOST, 0) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) *at = (void *)(uintptr_t)found;
  return result;
}

CUresult stub_cuMemAllocHost_v2(void **at, size_t size) { return host(at, size); }

CUresult stub_cuMemHostAlloc(void **at, size_t size, unsigned flags)
{
  return flags & ~7u ? CUDA_ERROR_INVALID_VALUE : host(at, size);
}

CUresult stub_cuMemFreeHost(void *at)
{
  stub_lock_objects();
  struct stub_block *block = stub_block_find((CUdeviceptr)(uintptr_t)at);
  bool ours = block && block->kind == BLOCK_HOST;
  if (ours) stub_block_free(block);
  stub_unlock_objects();
  return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuMemHostGetDevicePointer_v2(CUdeviceptr *at, void *host_at, unsigned flags)
{
  if (!at || flags) return CUDA_ERROR_INVALID_VALUE;
  *at = (CUdeviceptr)(uintptr_t)host_at;
  return CUDA_SUCCESS;
}

CUresult stub_cuMemHostGetFlags(unsigned *flags, void *at)
{
  (void)at;
  *flags = 0;
  return CUDA_SUCCESS;
}

CUresult stub_cuMemHostRegister_v2(void *at, size_t size, unsigned flags)
{
  (void)flags;
  return at && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

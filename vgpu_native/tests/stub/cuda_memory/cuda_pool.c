/* Stream-ordered memory. A pool takes memory of the card in large pieces, and keeps freed memory until a
 * synchronisation finds more than its threshold, or until it is trimmed. */
#include "cuda_stub.h"

#include <stdlib.h>

#define PIECE stub_step(STEP_POOL)

struct CUmemPoolHandle_st {
  int device;
  bool ended;
  uint64_t used, reserved, used_high, reserved_high, threshold;
  int flags[4]; /* the allowed reuse, in the order of the attributes */
  struct CUmemPoolHandle_st *next;
};

static struct CUmemPoolHandle_st defaults[STUB_DEVICES];
static CUmemoryPool current[STUB_DEVICES];
static CUmemoryPool pools;

__attribute__((constructor)) static void number_defaults(void)
{
  for (int i = 0; i < STUB_DEVICES; i++) defaults[i].device = i;
}

CUmemoryPool stub_default_pool(int device)
{
  return &defaults[device];
}

void stub_forget_pools(void)
{
  for (CUmemoryPool each = pools; each; each = each->next) each->ended = true;
  for (int i = 0; i < STUB_DEVICES; i++) {
    defaults[i] = (struct CUmemPoolHandle_st){.device = i};
    current[i] = NULL;
  }
  pools = NULL;
}

/* Objects are locked in all functions below but those of the driver. */
static void shrink(CUmemoryPool pool, uint64_t keep)
{
  uint64_t wanted = round_up(pool->used, PIECE);
  if (wanted < keep) wanted = keep;
  if (pool->reserved <= wanted) return;
  stub_give(pool->device, pool->reserved - wanted);
  pool->reserved = wanted;
}

static bool grow(CUmemoryPool pool, uint64_t bytes)
{
  uint64_t wanted = round_up(pool->used + bytes, PIECE);
  if (wanted > pool->reserved) {
    if (!stub_take(pool->device, wanted - pool->reserved)) return false;
    pool->reserved = wanted;
  }
  pool->used += bytes;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
  return true;
}

void stub_pool_give(CUmemoryPool pool, uint64_t bytes)
{
  pool->used -= bytes;
  if (pool->ended) shrink(pool, 0);
}

void stub_pools_settle(int device)
{
  CUmemoryPool first = &defaults[device];
  stub_lock_objects();
  shrink(first, first->threshold);
  for (CUmemoryPool each = pools; each; each = each->next)
    if (each->device == device) shrink(each, each->threshold);
  stub_unlock_objects();
}

static CUresult allocate(CUdeviceptr *at, size_t size, CUmemoryPool pool, CUstream handle)
{
  CUcontext now = stub_context();
  if (!now) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream stream = stub_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!at || !size || (pool && pool->ended)) return CUDA_ERROR_INVALID_VALUE;
  int device = stream->context->device;
  if (!pool) pool = current[device] ? current[device] : stub_default_pool(device);
  if (size > 1ull << 40) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t bytes = round_up(size, 512);
  if (stub_capturing(stream)) return stub_graph_alloc(stub_capture_graph(stream), pool->device, bytes, at, NULL);
  stub_lock_objects();
  struct stub_block *block = grow(pool, bytes) ? stub_block_make(size, BLOCK_POOL, false) : NULL;
  if (block) {
    block->bytes = bytes;
    block->device = pool->device;
    block->pool = pool;
    *at = block->at;
  }
  stub_unlock_objects();
  return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuMemAllocAsync(CUdeviceptr *at, size_t size, CUstream stream)
{
  return allocate(at, size, NULL, stream);
}

CUresult stub_cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t size, CUmemoryPool pool, CUstream stream)
{
  return pool ? allocate(at, size, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuMemFreeAsync(CUdeviceptr at, CUstream handle)
{
  CUstream stream = stub_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  if (stub_capturing(stream)) {
    bool graphs = block && block->at == at && block->kind == BLOCK_GRAPH;
    stub_unlock_objects();
    return graphs ? stub_graph_free(stub_capture_graph(stream), at, NULL) : CUDA_ERROR_INVALID_VALUE;
  }
  bool ours = block && block->at == at && block->kind != BLOCK_RANGE && block->kind != BLOCK_HOST &&
              block->kind != BLOCK_IPC;
  bool later = ours && block->kind == BLOCK_DEVICE && stub_setting("VGPU_STUB_FREE_IN_ORDER", 0);
  if (later) block->freed_at = stub_stream_end(stream);
  CUresult result = later ? CUDA_SUCCESS : ours ? stub_release_block(block) : CUDA_ERROR_INVALID_VALUE;
  stub_unlock_objects();
  return result;
}

CUresult stub_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
  if (!pool || !props) return CUDA_ERROR_INVALID_VALUE;
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !stub_is_device(props->location.id))
    return CUDA_ERROR_INVALID_VALUE;
  *pool = calloc(1, sizeof **pool);
  if (!*pool) return CUDA_ERROR_OUT_OF_MEMORY;
  stub_lock_objects();
  (*pool)->device = props->location.id;
  (*pool)->next = pools;
  pools = *pool;
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

/* Allocations stay, and the pool ends with the last of them. The object stays for that. */
CUresult stub_cuMemPoolDestroy(CUmemoryPool pool)
{
  if (!pool || pool->ended || pool == &defaults[pool->device]) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  pool->ended = true;
  pool->threshold = 0;
  shrink(pool, 0);
  if (current[pool->device] == pool) current[pool->device] = NULL;
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

CUresult stub_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  shrink(pool, keep);
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

CUresult stub_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
  case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *(uint64_t *)value = pool->threshold; break;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *(uint64_t *)value = pool->reserved; break;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *(uint64_t *)value = pool->reserved_high; break;
  case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *(uint64_t *)value = pool->used; break;
  case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *(uint64_t *)value = pool->used_high; break;
  default:
    if (which < 1 || which > 3) return CUDA_ERROR_INVALID_VALUE;
    *(int *)value = !pool->flags[which];
  }
  return CUDA_SUCCESS;
}

CUresult stub_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  uint64_t given = which >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? *(uint64_t *)value : 0;
  switch (which) {
  case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->threshold = given; break;
  case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    if (given) return CUDA_ERROR_INVALID_VALUE;
    pool->reserved_high = pool->reserved;
    break;
  case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    if (given) return CUDA_ERROR_INVALID_VALUE;
    pool->used_high = pool->used;
    break;
  default:
    if (which < 1 || which > 3) return CUDA_ERROR_INVALID_VALUE;
    pool->flags[which] = !*(int *)value;
  }
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = stub_default_pool(device);
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
  CUresult result = stub_cuDeviceGetDefaultMemPool(pool, device);
  if (result == CUDA_SUCCESS && current[device]) *pool = current[device];
  return result;
}

CUresult stub_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!pool || pool->ended || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  current[device] = pool;
  return CUDA_SUCCESS;
}

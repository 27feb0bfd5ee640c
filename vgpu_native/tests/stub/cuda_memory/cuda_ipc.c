/* Memory of cuMemAlloc that other processes open, and memory of other drivers. */
#include "cuda_stub.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x49504331u

struct exported {
  uint32_t magic, generation;
  int32_t share, device;
  uint64_t size;
  pid_t pid;
  uint32_t call; /* differs for each handle of an allocation, if a test sets that */
};

CUresult stub_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at)
{
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  bool may = block && block->kind == BLOCK_DEVICE;
  int share = may && block->small ? stub_window_share(block) : -1;
  if (may && !block->small && block->share < 0) block->share = stub_share(block->device, block->bytes);
  if (may && !block->small) share = block->share;
  may = may && share >= 0;
  if (may) {
    uint32_t generation = stub_state()->share[share].generation;
    static uint32_t calls;
    uint32_t call = stub_setting("VGPU_STUB_PLAIN_HANDLES", 0) ? ++calls : 0;
    struct exported out = {MAGIC, generation, share, block->device, block->size, getpid(), call};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &out, sizeof out);
  }
  stub_unlock_objects();
  return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct search {
  const struct exported *in;
  struct stub_block *found;
};

static void match(struct stub_block *block, void *with)
{
  struct search *search = with;
  if (block->kind == BLOCK_IPC && block->share == search->in->share) search->found = block;
}

/* Opened again, it has the same address, and must be closed as often. */
static CUresult open_once(CUdeviceptr *at, const struct exported *in)
{
  struct search search = {in, NULL};
  if (stub_state()->share[in->share].generation != in->generation) return CUDA_ERROR_INVALID_HANDLE;
  stub_blocks_each(match, &search);
  struct stub_block *block = search.found;
  if (!block) {
    if (!stub_hold(in->share, in->generation)) return CUDA_ERROR_INVALID_HANDLE;
    block = stub_block_make(in->size, BLOCK_IPC, false);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    block->share = in->share;
    block->device = in->device;
    block->context = stub_context();
  }
  block->opened++;
  *at = block->at;
  return CUDA_SUCCESS;
}

CUresult stub_cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags)
{
  struct exported in;
  memcpy(&in, &handle, sizeof in);
  if (!stub_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!at || flags > 1 || in.magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
  if (in.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  stub_lock_objects();
  CUresult result = open_once(at, &in);
  stub_unlock_objects();
  return result;
}

CUresult stub_cuIpcOpenMemHandle(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags)
{
  return stub_cuIpcOpenMemHandle_v2(at, handle, flags);
}

CUresult stub_cuIpcCloseMemHandle(CUdeviceptr at)
{
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  bool ours = block && block->kind == BLOCK_IPC && block->at == at;
  if (ours && --block->opened == 0) stub_release_block(block);
  stub_unlock_objects();
  return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- memory that another driver created, which is not counted --- */

struct CUextMemory_st {
  uint64_t size;
  int device;
};

CUresult stub_cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
  if (!memory || !desc || !desc->size) return CUDA_ERROR_INVALID_VALUE;
  if (stub_device() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *memory = malloc(sizeof **memory);
  if (!*memory) return CUDA_ERROR_OUT_OF_MEMORY;
  **memory = (struct CUextMemory_st){desc->size, stub_device()};
  return CUDA_SUCCESS;
}

CUresult stub_cuExternalMemoryGetMappedBuffer(CUdeviceptr *at, CUexternalMemory memory,
                                              const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
  if (!at || !memory || !desc || desc->offset + desc->size > memory->size) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  struct stub_block *block = stub_block_make(desc->size, BLOCK_EXTERNAL, false);
  if (block) {
    block->device = memory->device;
    block->context = stub_context();
    *at = block->at;
  }
  stub_unlock_objects();
  return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuDestroyExternalMemory(CUexternalMemory memory)
{
  free(memory);
  return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

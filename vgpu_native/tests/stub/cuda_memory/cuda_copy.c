/* Copies. Of each block the first 64 KiB are kept once they are written, so that a test can read back
 * what it wrote; everything else of a card reads as zeros. */
#include "cuda_stub.h"

#include <stdlib.h>
#include <string.h>

#define KEPT 65536ull

/* The bytes of a block from an address on, and their number; objects are locked. */
static unsigned char *content(CUdeviceptr at, uint64_t *length)
{
  struct stub_block *block = stub_block_find(at);
  *length = 0;
  if (!block) return NULL;
  bool real = block->kind == BLOCK_HOST || block->kind == BLOCK_MANAGED;
  uint64_t offset = at - block->at, kept = real || block->size < KEPT ? block->size : KEPT;
  if (offset >= kept) return NULL;
  *length = kept - offset;
  if (real) return (unsigned char *)(uintptr_t)at;
  if (!block->content) block->content = calloc(1, kept);
  return block->content ? block->content + offset : NULL;
}

static bool inside(CUdeviceptr at, uint64_t size)
{
  struct stub_block *block = stub_block_find(at);
  return block && at - block->at + size <= block->size;
}

static CUresult write_to(CUdeviceptr at, const void *from, uint64_t size)
{
  uint64_t kept;
  stub_lock_objects();
  bool known = inside(at, size);
  unsigned char *to = content(at, &kept);
  if (known && to) memcpy(to, from, size < kept ? size : kept);
  stub_unlock_objects();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult read_from(void *to, CUdeviceptr at, uint64_t size)
{
  uint64_t kept;
  stub_lock_objects();
  bool known = inside(at, size);
  unsigned char *from = content(at, &kept);
  if (known) memset(to, 0, size);
  if (known && from) memcpy(to, from, size < kept ? size : kept);
  stub_unlock_objects();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult between(CUdeviceptr to, CUdeviceptr from, uint64_t size)
{
  unsigned char some[4096];
  uint64_t part = size < sizeof some ? size : sizeof some;
  CUresult result = read_from(some, from, part);
  return result == CUDA_SUCCESS ? write_to(to, some, part) : result;
}

static CUresult fill(CUdeviceptr at, const void *value, uint64_t width, uint64_t count)
{
  uint64_t kept;
  stub_lock_objects();
  bool known = inside(at, width * count);
  unsigned char *to = content(at, &kept);
  for (uint64_t i = 0; known && to && i < count && (i + 1) * width <= kept; i++)
    memcpy(to + i * width, value, width);
  stub_unlock_objects();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define IN_CONTEXT \
  if (!stub_context()) return CUDA_ERROR_INVALID_CONTEXT

CUresult stub_cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size)
{
  IN_CONTEXT;
  return write_to(to, from, size);
}

CUresult stub_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size)
{
  IN_CONTEXT;
  return read_from(to, from, size);
}

CUresult stub_cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size)
{
  IN_CONTEXT;
  return between(to, from, size);
}

/* While a stream is captured, nothing is done. */
#define UNLESS_CAPTURED(handle)                     \
  CUstream stream = stub_stream(handle);            \
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;    \
  if (stub_capturing(stream)) return CUDA_SUCCESS

CUresult stub_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream handle)
{
  UNLESS_CAPTURED(handle);
  return write_to(to, from, size);
}

CUresult stub_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream handle)
{
  UNLESS_CAPTURED(handle);
  return read_from(to, from, size);
}

CUresult stub_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream handle)
{
  UNLESS_CAPTURED(handle);
  return between(to, from, size);
}

CUresult stub_cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t count)
{
  IN_CONTEXT;
  return fill(at, &value, 1, count);
}

CUresult stub_cuMemsetD16_v2(CUdeviceptr at, unsigned short value, size_t count)
{
  IN_CONTEXT;
  return fill(at, &value, 2, count);
}

CUresult stub_cuMemsetD32_v2(CUdeviceptr at, unsigned value, size_t count)
{
  IN_CONTEXT;
  return fill(at, &value, 4, count);
}

CUresult stub_cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream handle)
{
  UNLESS_CAPTURED(handle);
  return fill(at, &value, 1, count);
}

CUresult stub_cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream handle)
{
  UNLESS_CAPTURED(handle);
  return fill(at, &value, 4, count);
}

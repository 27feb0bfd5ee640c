/* The limits of a context that take memory of the card: the first values are part of the context. */
#include "cuda_stub.h"

#define THREADS (132ull * 2048)

static const uint64_t first_values[] = {1024, 1u << 20, 8u << 20};

static uint64_t factor(CUlimit limit) { return limit == CU_LIMIT_STACK_SIZE ? THREADS : 1; }

static uint64_t value_of(CUcontext context, CUlimit limit)
{
  if (limit > CU_LIMIT_MALLOC_HEAP_SIZE) return 1024;
  return context->limits[limit] ? context->limits[limit] : first_values[limit];
}

CUresult stub_cuCtxGetLimit(size_t *value, CUlimit limit)
{
  CUcontext now = stub_context();
  if (!now) return CUDA_ERROR_INVALID_CONTEXT;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  *value = value_of(now, limit);
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxSetLimit(CUlimit limit, size_t value)
{
  CUcontext now = stub_context();
  if (!now) return CUDA_ERROR_INVALID_CONTEXT;
  if (limit > CU_LIMIT_MALLOC_HEAP_SIZE) return CUDA_SUCCESS;
  uint64_t before = value_of(now, limit) * factor(limit), after = value * factor(limit);
  if (after > before && !stub_take(now->device, after - before)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (after < before) stub_give(now->device, before - after);
  now->bytes += after - before;
  now->limits[limit] = value;
  return CUDA_SUCCESS;
}

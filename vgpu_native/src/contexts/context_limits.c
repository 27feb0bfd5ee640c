/* cuCtxSetLimit: the heap of malloc, the buffer of printf, and the stacks of all threads take memory of the card. They
 * are charged when they are set, because the driver may take them at a later launch. */
#include "contexts/context_charge.h"
#include "contexts/own_growth.h"
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "util/arithmetic.h"

/* Bytes of the card for each byte of a limit; 0: the limit takes none. */
static uint64_t factor_of(CUlimit limit) {
  int processors = 0, threads = 0;
  CUdevice device;
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE) return 1;
  if (limit != CU_LIMIT_STACK_SIZE || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS) return 0;
  REAL(cuDeviceGetAttribute)(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  REAL(cuDeviceGetAttribute)(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device);
  return (uint64_t)processors * (uint64_t)threads;
}

static uint64_t bytes_of(CUlimit limit, uint64_t factor) {
  size_t value = 0;
  return REAL(cuCtxGetLimit)(&value, limit) == CUDA_SUCCESS ? vgpu_product(value, factor) : 0;
}

/* Lowered: what this process gave back is uncharged, and no more. If that is unknown, it stays charged. */
static void lower(const struct vgpu_current_context *current, uint64_t fell, uint64_t before, uint64_t after) {
  uint64_t back = before - after < fell ? before - after : fell;
  if (!back || !vgpu_context_has(current->context, back)) return;
  vgpu_release(current->entry, back);
  vgpu_context_add(current->context, current->entry, -(int64_t)back);
}

/* Set a limit that takes memory. `charge` has the bytes by which it may grow. */
static CUresult set(CUlimit limit, size_t value, uint64_t factor, struct vgpu_charge *charge, uint64_t before) {
  const struct vgpu_current_context *current = vgpu_current_context();
  struct vgpu_growth growth;
  int64_t change;
  vgpu_growth_begin(&growth, charge->entry);
  CUresult result = REAL(cuCtxSetLimit)(limit, value);
  uint64_t after = result == CUDA_SUCCESS ? bytes_of(limit, factor) : before;
  vgpu_growth_end(&growth, &change);
  uint64_t grown = after > before ? after - before : 0, taken = change > 0 ? (uint64_t)change : 0;
  if (grown < charge->bytes) vgpu_release(charge->entry, charge->bytes - grown);
  else if (grown > charge->bytes) vgpu_reserve_forced(charge->entry, grown - charge->bytes);
  if (grown) vgpu_context_add(current->context, charge->entry, (int64_t)grown);
  if (grown > taken) vgpu_promise(charge->entry, grown - taken);
  if (after < before && change < 0) lower(current, (uint64_t)-change, before, after);
  return result;
}

EXPORT CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  if (!vgpu_enter()) return REAL(cuCtxSetLimit)(limit, value);
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t factor = vgpu_contexts_charged(vgpu_current_context()->entry) ? factor_of(limit) : 0;
  if (!factor) {
    result = REAL(cuCtxSetLimit)(limit, value);
  } else {
    uint64_t before = bytes_of(limit, factor), wanted = vgpu_product(value, factor);
    if (vgpu_charge_current(&charge, wanted > before ? wanted - before : 0)) result = set(limit, value, factor, &charge, before);
  }
  vgpu_leave();
  return result;
}

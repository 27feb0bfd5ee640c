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

/* Bytes that stay charged to a context after a limit was lowered, by context and limit. A later raise uses them
 * first, so that limits which rise and fall again and again are charged for their highest value. */
static struct vgpu_map kept;

static uint64_t key_of(CUcontext context, CUlimit limit) { return (uint64_t)(uintptr_t)context << 2 | (limit + 1); }

static uint64_t kept_of(CUcontext context, CUlimit limit) {
  struct vgpu_item item;
  return vgpu_map_find(&kept, key_of(context, limit), &item) ? item.bytes : 0;
}

static void keep(CUcontext context, CUlimit limit, uint64_t bytes) {
  struct vgpu_item old, item = {key_of(context, limit), bytes, 0};
  if (bytes) vgpu_map_put(&kept, item, &old);
  else vgpu_map_take(&kept, item.key, &old);
}

static bool is_of(const struct vgpu_item *item, const void *context) { return item->key >> 2 == (uintptr_t)context; }

void vgpu_limits_end(CUcontext context) { vgpu_map_sweep(&kept, is_of, context); }

/* Lowered: what this process gave back is uncharged, and no more. If that is unknown, it stays charged. Returns the
 * uncharged bytes. */
static uint64_t lower(const struct vgpu_current_context *current, uint64_t fell, uint64_t before, uint64_t after) {
  uint64_t back = vgpu_least(before - after, fell);
  if (!back || !vgpu_context_has(current->context, back)) return 0;
  vgpu_release(current->entry, back);
  vgpu_context_add(current->context, current->entry, -(int64_t)back);
  return back;
}

/* Raised by `grown` bytes of which the driver took some now. `reserved` were charged for it. */
static void raise(const struct vgpu_current_context *current, int entry, uint64_t reserved, uint64_t grown,
                  uint64_t taken) {
  if (grown < reserved) vgpu_release(entry, reserved - grown);
  else if (grown > reserved) vgpu_reserve_forced(entry, grown - reserved);
  if (grown) vgpu_context_add(current->context, entry, (int64_t)grown);
  if (grown > taken) vgpu_promise(entry, grown - taken);
}

/* Set a limit that takes memory. `charge` has the bytes by which it may grow beyond `spare` ones. */
static CUresult set(CUlimit limit, size_t value, uint64_t factor, struct vgpu_charge *charge, uint64_t spare) {
  const struct vgpu_current_context *current = vgpu_current_context();
  uint64_t before = bytes_of(limit, factor);
  struct vgpu_growth growth;
  int64_t change;
  vgpu_growth_begin(&growth, charge->entry);
  CUresult result = REAL(cuCtxSetLimit)(limit, value);
  uint64_t after = result == CUDA_SUCCESS ? bytes_of(limit, factor) : before;
  vgpu_growth_end(&growth, &change);
  uint64_t grown = after > before ? after - before : 0, covered = vgpu_least(grown, spare);
  raise(current, charge->entry, charge->bytes, grown - covered, change > 0 ? (uint64_t)change : 0);
  uint64_t fell = before > after ? before - after : 0;
  uint64_t back = fell && change < 0 ? lower(current, (uint64_t)-change, before, after) : 0;
  if (covered || fell) keep(current->context, limit, spare - covered + fell - back);
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
    uint64_t spare = kept_of(vgpu_current_context()->context, limit);
    uint64_t wanted = vgpu_product(value, factor), has = bytes_of(limit, factor) + spare;
    if (vgpu_charge_current(&charge, wanted > has ? wanted - has : 0)) result = set(limit, value, factor, &charge, spare);
  }
  vgpu_leave();
  return result;
}

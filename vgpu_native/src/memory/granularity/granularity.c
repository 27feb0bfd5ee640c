/* Measuring the granularity: the free memory of the card is read around allocations of this process.
 *
 * Other containers allocate at the same time. So a pass counts only if its numbers are those of some
 * granularity, and a second pass must return the same. The memory that a pass takes is reserved within the
 * limit. The result is not shared with other processes, because any of them could write another into the
 * region, and a pass takes less than a millisecond. */
#include "memory/granularity/granularity.h"

#include "driver.h"
#include "util/arithmetic.h"
#include "util/assert.h"
#include "util/cancellation.h"
#include "util/fork_handlers.h"
#include "vgpu.h"

enum { PASSES_MAX = 6, ATTEMPTS_MAX = 8, PROBES = 3 };

#define LEAST 512ULL
#define PAGE (2ULL << 20)
#define MOST (32ULL << 20) /* no granularity is larger */
#define PROBES_BYTES (2 * PAGE)
#define ARRAY_STEP 65536ULL

/* The last probe of a kind is large; the others are small and allocated one after the other. */
static const uint64_t probe_bytes[VGPU_ALLOCATION_KINDS][PROBES] = {
    [VGPU_LINEAR] = {LEAST, LEAST, VGPU_SMALL_MAX + LEAST},
    [VGPU_ARRAYS] = {ARRAY_STEP, ARRAY_STEP, VGPU_SMALL_MAX + ARRAY_STEP},
};

/* Until they are measured: small allocations as drivers always aligned them, large ones by pages. */
static const struct vgpu_granularity assumed[VGPU_ALLOCATION_KINDS] = {
    [VGPU_LINEAR] = {LEAST, PAGE, 0},
    [VGPU_ARRAYS] = {ARRAY_STEP, PAGE, 0},
};

static struct measured {
  struct vgpu_granularity granularity;
  bool done;
  unsigned attempts;
} measured[VGPU_ALLOCATION_KINDS][VGPU_DEVICES_MAX];

static struct vgpu_lock lock = VGPU_UNLOCKED(VGPU_RANK_GRANULARITY);
static bool watched;

static void forget(void) { lock = (struct vgpu_lock)VGPU_UNLOCKED(VGPU_RANK_GRANULARITY); }

bool vgpu_card_used(uint64_t *used) {
  size_t free = 0, total = 0;
  bool done = REAL(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && free <= total;
  *used = total - free;
  return done;
}

static bool take(enum vgpu_allocation_kind kind, uint64_t bytes, uint64_t *handle) {
  if (kind == VGPU_LINEAR) return REAL(cuMemAlloc_v2)((CUdeviceptr *)handle, bytes) == CUDA_SUCCESS;
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = bytes / 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
  return REAL(cuArray3DCreate_v2)((CUarray *)handle, &shape) == CUDA_SUCCESS;
}

static bool give(enum vgpu_allocation_kind kind, uint64_t handle) {
  if (kind == VGPU_LINEAR) return REAL(cuMemFree_v2)(handle) == CUDA_SUCCESS;
  return REAL(cuArrayDestroy)((CUarray)(uintptr_t)handle) == CUDA_SUCCESS;
}

/* Take a probe; `delta` becomes the bytes by which the card's used memory grew. */
static bool probe(enum vgpu_allocation_kind kind, unsigned which, uint64_t *handle, int64_t *delta) {
  uint64_t before, after;
  if (!vgpu_card_used(&before) || !take(kind, probe_bytes[kind][which], handle)) return false;
  bool done = vgpu_card_used(&after);
  *delta = (int64_t)(after - before);
  return done || (give(kind, *handle), *handle = 0, false);
}

static bool is_power_of_two(uint64_t value) { return value && !(value & (value - 1)); }

/* The step with which a request takes `delta` bytes, 0 if none does. The step of 1 MiB is left out, because
 * the large probe cannot distinguish it from 2 MiB. */
static uint64_t step_of(uint64_t bytes, int64_t delta) {
  for (uint64_t step = LEAST; step <= MOST; step *= 2)
    if (step != PAGE / 2 && (int64_t)vgpu_rounded(bytes, step) == delta) return step;
  return 0;
}

/* The granularity that explains the three deltas. False: none does. */
static bool explain(enum vgpu_allocation_kind kind, const int64_t delta[PROBES],
                    struct vgpu_granularity *result) {
  const uint64_t *bytes = probe_bytes[kind];
  *result = (struct vgpu_granularity){.large = step_of(bytes[2], delta[2])};
  if (!result->large) return false;
  if (delta[0] == delta[1] && delta[0] > 0) {
    result->small = step_of(bytes[0], delta[0]);
    return result->small != 0;
  }
  /* At most one of two neighbours begins a block; if none does, the block is one of the context's. */
  int64_t block = delta[0] + delta[1];
  if (delta[0] < 0 || delta[1] < 0 || (delta[0] && delta[1])) return false;
  result->small = assumed[kind].small;
  result->block = block ? (uint64_t)block : result->large;
  return is_power_of_two(result->block) && result->block >= ARRAY_STEP && result->block <= MOST;
}

static bool measure_once(enum vgpu_allocation_kind kind, struct vgpu_granularity *result) {
  uint64_t handle[PROBES] = {0};
  int64_t delta[PROBES];
  bool done = probe(kind, 0, &handle[0], &delta[0]) && probe(kind, 1, &handle[1], &delta[1]);
  for (unsigned i = 0; i < 2; i++) done = (!handle[i] || give(kind, handle[i])) && done;
  done = done && probe(kind, 2, &handle[2], &delta[2]);
  if (handle[2]) done = give(kind, handle[2]) && done;
  return done && explain(kind, delta, result);
}

static bool is_same(const struct vgpu_granularity *a, const struct vgpu_granularity *b) {
  return a->small == b->small && a->large == b->large && a->block == b->block;
}

/* Two passes that agree. */
static bool measure(enum vgpu_allocation_kind kind, struct vgpu_granularity *result) {
  struct vgpu_granularity last = {0};
  for (unsigned pass = 0; pass < PASSES_MAX; pass++) {
    bool done = measure_once(kind, result);
    if (done && is_same(result, &last)) return true;
    last = done ? *result : (struct vgpu_granularity){0};
  }
  return false;
}

static void measure_reserved(enum vgpu_allocation_kind kind, int entry) {
  struct measured *now = &measured[kind][entry];
  if (!vgpu_reserve(entry, PROBES_BYTES)) return;
  struct vgpu_granularity result;
  now->attempts++;
  if (measure(kind, &result)) now->granularity = result;
  else if (now->attempts < ATTEMPTS_MAX) now = NULL;
  else now->granularity = assumed[kind];
  if (now) __atomic_store_n(&now->done, true, __ATOMIC_RELEASE);
  vgpu_release(entry, PROBES_BYTES);
}

static bool is_done(enum vgpu_allocation_kind kind, int entry) {
  return __atomic_load_n(&measured[kind][entry].done, __ATOMIC_ACQUIRE);
}

static __attribute__((noinline)) bool measure_now(enum vgpu_allocation_kind kind, int entry) {
  if (vgpu_limit(entry) == VGPU_NO_LIMIT) return false;
  vgpu_reset_in_children(&watched, forget);
  vgpu_lock(&lock);
  if (!is_done(kind, entry)) measure_reserved(kind, entry);
  vgpu_unlock(&lock);
  return is_done(kind, entry);
}

const struct vgpu_granularity *vgpu_granularity(enum vgpu_allocation_kind kind, int entry) {
  bool counted = entry >= 0 && entry < VGPU_DEVICES_MAX;
  if (!counted || !(is_done(kind, entry) || measure_now(kind, entry))) return &assumed[kind];
  return &measured[kind][entry].granularity;
}

void vgpu_granularity_measure(int entry) {
  for (int kind = 0; kind < VGPU_ALLOCATION_KINDS; kind++)
    vgpu_granularity((enum vgpu_allocation_kind)kind, entry);
}

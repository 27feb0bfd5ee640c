#include "memory/charges/memory_pools.h"

#include <sched.h>
#include <stdlib.h>

#include "intercept/device_lookup.h"
#include "memory/charges/allocation_charge.h"
#include "memory/granularity/growth_step.h"
#include "util/arithmetic.h"
#include "util/assert.h"
#include "util/cancellation.h"
#include "util/fork_handlers.h"
#include "vgpu.h"

#define STEP 512 /* of an allocation from a pool */

enum { TRIES = 4 };

struct vgpu_pool {
  struct vgpu_pool *next;
  CUmemoryPool handle;
  int entry;
  struct vgpu_lock lock; /* of the fields below, held during driver calls */
  uint64_t charged;      /* bytes that the pool kept when it was last read */
  uint64_t held;         /* bytes that calls in progress have reserved for its growth */
  uint64_t asked;        /* bytes of its unused memory that calls in progress use */
  uint64_t live;         /* allocations that were not freed */
  bool ended;            /* destroyed by the program; live allocations keep it */
};

static struct vgpu_map pools;    /* handle to pool */
static struct vgpu_map pointers; /* pointer to pool */
static struct vgpu_pool *first;

static struct vgpu_lock making = VGPU_UNLOCKED(VGPU_RANK_POOL_LIST);
static bool watched;

/* The step by which the driver enlarges pools, by device. A pool with less than a step left of its limit does
 * not grow, because the driver, which can use the whole card, would exceed the limit. */
static uint64_t steps[VGPU_DEVICES_MAX + 1];

static void forget(void) {
  first = NULL;
  making = (struct vgpu_lock)VGPU_UNLOCKED(VGPU_RANK_POOL_LIST);
}

bool vgpu_pools_exist(void) { return __atomic_load_n(&first, __ATOMIC_ACQUIRE) != NULL; }

static void push(struct vgpu_pool *pool) {
  pool->next = __atomic_load_n(&first, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&first, &pool->next, pool, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED)) {
  }
  vgpu_reset_in_children(&watched, forget);
}

/* Use an ended pool without live allocations again. */
static struct vgpu_pool *reuse(CUmemoryPool handle, int entry) {
  for (struct vgpu_pool *pool = __atomic_load_n(&first, __ATOMIC_ACQUIRE); pool; pool = pool->next) {
    vgpu_lock(&pool->lock);
    bool usable = pool->ended && !pool->live;
    if (usable) {
      VGPU_ASSERT(!pool->charged);
      pool->ended = false;
      pool->handle = handle;
      __atomic_store_n(&pool->entry, entry, __ATOMIC_RELAXED);
    }
    vgpu_unlock(&pool->lock);
    if (usable) return pool;
  }
  return NULL;
}

static struct vgpu_pool *allocate(CUmemoryPool handle, int entry) {
  struct vgpu_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return NULL;
  pool->lock = (struct vgpu_lock)VGPU_UNLOCKED(VGPU_RANK_POOL);
  pool->handle = handle;
  pool->entry = entry;
  push(pool);
  return pool;
}

static struct vgpu_pool *add_pool(CUmemoryPool handle, int entry) {
  VGPU_ASSERT(vgpu_rank_held(VGPU_RANK_POOL_LIST));
  struct vgpu_pool *pool = reuse(handle, entry);
  if (!pool) pool = allocate(handle, entry);
  if (!pool) return NULL;
  struct vgpu_item old;
  vgpu_map_put(&pools, (struct vgpu_item){(uintptr_t)handle, 0, (uintptr_t)pool}, &old);
  return pool;
}

void vgpu_pool_created(CUmemoryPool handle, int entry) {
  vgpu_lock(&making);
  add_pool(handle, entry);
  vgpu_unlock(&making);
}

static struct vgpu_pool *find_pool(CUmemoryPool handle) {
  struct vgpu_item item;
  bool known = vgpu_map_find(&pools, (uintptr_t)handle, &item);
  return known ? (struct vgpu_pool *)(uintptr_t)item.note : NULL;
}

/* The entry of a pool that this process did not create, but the driver. Drivers before 13 do not report
 * its device, but there the default pool is a device's only one. */
static int entry_of(CUmemoryPool handle) {
  int type = 0, device = -1, count = 0;
  if (REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type) == CUDA_SUCCESS &&
      REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &device) == CUDA_SUCCESS) {
    return type == CU_MEM_LOCATION_TYPE_DEVICE ? vgpu_device_entry(device) : -1;
  }
  REAL(cuDeviceGetCount)(&count);
  for (device = 0; device < count; device++) {
    CUmemoryPool own = NULL;
    REAL(cuDeviceGetDefaultMemPool)(&own, device);
    if (own == handle) return vgpu_device_entry(device);
  }
  return -1;
}

/* Two threads may find one of the driver's pools at the same time; it is added once. */
static struct vgpu_pool *find_or_add(CUmemoryPool handle) {
  vgpu_lock(&making);
  struct vgpu_pool *pool = find_pool(handle);
  if (!pool) pool = add_pool(handle, entry_of(handle));
  vgpu_unlock(&making);
  return pool;
}

struct vgpu_pool *vgpu_pool_of(CUmemoryPool handle) {
  struct vgpu_pool *pool = find_pool(handle);
  if (!pool) pool = find_or_add(handle);
  return pool && pool->entry >= 0 ? pool : NULL;
}

/* Read how much a pool keeps, under its lock; the last value if it cannot be read. */
static uint64_t read_kept(const struct vgpu_pool *pool) {
  cuuint64_t bytes = 0;
  if (pool->ended) return pool->charged;
  CUresult result =
      REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return result == CUDA_SUCCESS ? bytes : pool->charged;
}

/* Written under the lock, and read without it. */
static void set_charged(struct vgpu_pool *pool, uint64_t bytes) {
  __atomic_store_n(&pool->charged, bytes, __ATOMIC_RELAXED);
}

/* Charge the memory that a pool keeps, of which `held` is charged already. Returns whether it grew by
 * more than that. */
static bool update_charge(struct vgpu_pool *pool, uint64_t held) {
  VGPU_ASSERT(vgpu_rank_held(VGPU_RANK_POOL));
  uint64_t now = read_kept(pool), before = pool->charged + held;
  if (now > before) vgpu_reserve_forced(pool->entry, now - before);
  if (now < before) vgpu_release(pool->entry, before - now);
  set_charged(pool, now);
  return now > before;
}

void vgpu_pool_update_charge(struct vgpu_pool *pool) {
  if (!pool) return;
  vgpu_lock(&pool->lock);
  if (pool->entry >= 0) update_charge(pool, 0);
  vgpu_unlock(&pool->lock);
}

void vgpu_pools_update_charges(void) {
  for (struct vgpu_pool *pool = __atomic_load_n(&first, __ATOMIC_ACQUIRE); pool; pool = pool->next) {
    if (__atomic_load_n(&pool->charged, __ATOMIC_RELAXED)) vgpu_pool_update_charge(pool);
  }
}

bool vgpu_pools_reclaim(int entry) {
  bool any = false;
  for (struct vgpu_pool *pool = __atomic_load_n(&first, __ATOMIC_ACQUIRE); pool; pool = pool->next) {
    if (__atomic_load_n(&pool->entry, __ATOMIC_RELAXED) != entry) continue;
    any = true;
    vgpu_lock(&pool->lock);
    if (!pool->ended) REAL(cuMemPoolTrimTo)(pool->handle, 0);
    update_charge(pool, 0);
    vgpu_unlock(&pool->lock);
  }
  return any;
}

static bool hold(struct vgpu_growth *growth, uint64_t bytes) {
  if (!vgpu_reserve(growth->pool->entry, bytes)) return false;
  growth->held = bytes;
  __atomic_add_fetch(&growth->pool->held, bytes, __ATOMIC_RELAXED);
  return true;
}

/* The memory that a pool keeps without using it. */
static uint64_t unused_in(const struct vgpu_pool *pool) {
  cuuint64_t kept = 0, used = 0;
  REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &kept);
  REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
  return kept > used ? kept - used : 0;
}

/* Whether a pool has room without growing, also for other calls in progress that count on its room. If
 * it grows nevertheless, vgpu_pool_end_growth detects that. */
static bool fits_within(struct vgpu_growth *growth, uint64_t bytes) {
  struct vgpu_pool *pool = growth->pool;
  vgpu_lock(&pool->lock);
  uint64_t room = unused_in(pool);
  bool fits = bytes <= room && pool->asked <= room - bytes;
  if (fits) pool->asked += growth->asked = bytes;
  vgpu_unlock(&pool->lock);
  return fits;
}

/* The same with some tries, because the room of a call that has just returned from the driver is
 * subtracted twice for a moment. */
static bool fits_soon(struct vgpu_growth *growth, uint64_t bytes) {
  for (int i = 0; i < TRIES; i++) {
    if (fits_within(growth, bytes)) return true;
    sched_yield();
  }
  return false;
}

bool vgpu_pool_begin_growth(struct vgpu_growth *growth, struct vgpu_pool *pool, uint64_t bytes) {
  *growth = (struct vgpu_growth){.pool = pool};
  uint64_t most = pool ? vgpu_rounded(bytes, vgpu_growth_step(&steps[pool->entry])) : 0;
  growth->most = most;
  if (!pool || hold(growth, most) || fits_soon(growth, vgpu_rounded(bytes, STEP))) return true;
  return vgpu_pools_reclaim(pool->entry) && hold(growth, most);
}

/* An address may have belonged to linear memory, or to another pool, that no hook saw freed. */
static void track(struct vgpu_pool *pool, CUdeviceptr pointer) {
  struct vgpu_item old;
  vgpu_charge_replaced(pointer);
  if (!vgpu_map_put(&pointers, (struct vgpu_item){pointer, 0, (uintptr_t)pool}, &old)) return;
  __atomic_add_fetch(&pool->live, 1, __ATOMIC_RELAXED);
  if (!old.key) return;
  uint64_t live = __atomic_fetch_sub(&((struct vgpu_pool *)(uintptr_t)old.note)->live, 1, __ATOMIC_RELAXED);
  VGPU_ASSERT(live);
}

bool vgpu_pool_end_growth(struct vgpu_growth *growth, CUresult result, const CUdeviceptr *pointer) {
  struct vgpu_pool *pool = growth->pool;
  if (!pool) return true;
  vgpu_lock(&pool->lock);
  /* The memory that the pool keeps may include growth that other threads have reserved. */
  VGPU_ASSERT(pool->asked >= growth->asked && pool->held >= growth->held);
  pool->asked -= growth->asked;
  uint64_t others = __atomic_sub_fetch(&pool->held, growth->held, __ATOMIC_RELAXED);
  uint64_t before = pool->charged;
  bool grew = update_charge(pool, growth->held);
  if (!others && pool->charged > before)
    vgpu_growth_learn(&steps[pool->entry], pool->charged, pool->charged - before, growth->most);
  uint64_t used = vgpu_used(pool->entry), limit = vgpu_limit(pool->entry);
  vgpu_unlock(&pool->lock);
  if (result != CUDA_SUCCESS) return true;
  if (grew && used > limit && used - limit > others) return false;
  track(pool, *pointer);
  return true;
}

void vgpu_pool_undo_growth(struct vgpu_growth *growth) {
  struct vgpu_pool *pool = growth->pool;
  vgpu_lock(&pool->lock);
  if (!pool->ended) REAL(cuMemPoolTrimTo)(pool->handle, 0);
  update_charge(pool, 0);
  vgpu_unlock(&pool->lock);
}

struct vgpu_pool_free vgpu_pool_begin_free(CUdeviceptr pointer) {
  struct vgpu_pool_free pooled = {.known = false};
  if (vgpu_pools_exist()) pooled.known = vgpu_map_take(&pointers, pointer, &pooled.item);
  return pooled;
}

void vgpu_pool_end_free(const struct vgpu_pool_free *pooled, CUresult result) {
  struct vgpu_item old;
  if (!pooled->known) return;
  if (result != CUDA_SUCCESS) {
    vgpu_map_put(&pointers, pooled->item, &old);
    return;
  }
  struct vgpu_pool *pool = (struct vgpu_pool *)(uintptr_t)pooled->item.note;
  vgpu_lock(&pool->lock);
  uint64_t live = __atomic_sub_fetch(&pool->live, 1, __ATOMIC_RELAXED);
  VGPU_ASSERT(live != UINT64_MAX);
  if (!pool->ended) update_charge(pool, 0);
  else if (!live) {
    vgpu_release(pool->entry, pool->charged);
    set_charged(pool, 0);
  }
  vgpu_unlock(&pool->lock);
}

struct vgpu_pool *vgpu_pool_begin_destroy(CUmemoryPool handle) {
  struct vgpu_item item;
  bool known = vgpu_map_take(&pools, (uintptr_t)handle, &item);
  return known ? (struct vgpu_pool *)(uintptr_t)item.note : NULL;
}

void vgpu_pool_end_destroy(struct vgpu_pool *pool, CUmemoryPool handle, CUresult result) {
  struct vgpu_item item = {(uintptr_t)handle, 0, (uintptr_t)pool}, old;
  if (!pool) return;
  if (result != CUDA_SUCCESS) {
    vgpu_map_put(&pools, item, &old);
    return;
  }
  vgpu_lock(&pool->lock);
  pool->ended = true;
  if (!__atomic_load_n(&pool->live, __ATOMIC_RELAXED)) {
    if (pool->entry >= 0) vgpu_release(pool->entry, pool->charged);
    set_charged(pool, 0);
  }
  vgpu_unlock(&pool->lock);
}

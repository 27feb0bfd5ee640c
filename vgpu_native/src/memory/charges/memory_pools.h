/* Memory pools: the memory that a pool keeps of the card is charged, and not its allocations.
 *
 * The driver reports how much a pool keeps. That is read again after each call that may change it, and
 * the difference is charged or uncharged, so that no error accumulates. Before a call that may enlarge
 * a pool, the largest possible growth is charged during the call. Near the limit a call is made only if
 * the pool has room already. */
#pragma once

#include "driver.h"
#include "util/handle_map.h"

struct vgpu_pool;

/* Add a pool that the program created, on the device of `entry`; -1: not in a device's memory. */
void vgpu_pool_created(CUmemoryPool handle, int entry);

/* The pool of a handle. NULL: the pool is not charged. */
struct vgpu_pool *vgpu_pool_of(CUmemoryPool handle);

/* Around a call that takes memory from a pool. */
struct vgpu_growth {
  struct vgpu_pool *pool;
  uint64_t held, asked, most;
};
bool vgpu_pool_begin_growth(struct vgpu_growth *growth, struct vgpu_pool *pool, uint64_t bytes);

/* False: the pool grew by more than was reserved for it, beyond the limit. Then the caller frees the
 * allocation and calls vgpu_pool_undo_growth. */
bool vgpu_pool_end_growth(struct vgpu_growth *growth, CUresult result, const CUdeviceptr *pointer);
void vgpu_pool_undo_growth(struct vgpu_growth *growth);

/* Around a call that frees memory of a pool. */
struct vgpu_pool_free {
  struct vgpu_item item;
  bool known;
};
struct vgpu_pool_free vgpu_pool_begin_free(CUdeviceptr pointer);
void vgpu_pool_end_free(const struct vgpu_pool_free *pooled, CUresult result);

/* Around the destruction of a pool. Its allocations stay charged until they are freed. */
struct vgpu_pool *vgpu_pool_begin_destroy(CUmemoryPool handle);
void vgpu_pool_end_destroy(struct vgpu_pool *pool, CUmemoryPool handle, CUresult result);

/* Read again how much a pool, or each pool of this process, keeps, and charge it. */
void vgpu_pool_update_charge(struct vgpu_pool *pool);
void vgpu_pools_update_charges(void);

/* Whether there are pools; one load. */
bool vgpu_pools_exist(void);

/* Trim all pools of a device, as the driver does when it is out of memory. False: there are none. */
bool vgpu_pools_reclaim(int entry);

/* Memory pools: what a pool keeps from the card is charged, not what is handed out of it.
 *
 * The driver says how much a pool keeps. That is read again after each call that may change it, and
 * the difference is charged or uncharged, so nothing drifts. Before a call that may make a pool
 * larger, as much as it may grow is charged for the time of the call; near the limit only calls are
 * made for which the pool has room already. */
#pragma once

#include "driver.h"
#include "util/handle_map.h"

struct vgpu_pool;

/* A pool that was made by the caller, on the device of `entry`; -1: not in a device's memory. */
void vgpu_pool_created(CUmemoryPool handle, int entry);

/* The pool behind a handle; NULL: none that is charged. */
struct vgpu_pool *vgpu_pool_of(CUmemoryPool handle);

/* Around a call that takes memory from a pool. */
struct vgpu_growth {
  struct vgpu_pool *pool;
  uint64_t held, asked;
};
bool vgpu_pool_begin_growth(struct vgpu_growth *growth, struct vgpu_pool *pool, uint64_t bytes);

/* False: the pool grew by more than was held for it, over the limit, and what was allocated is to be
 * given back, before vgpu_pool_undo_growth. */
bool vgpu_pool_end_growth(struct vgpu_growth *growth, CUresult result, const CUdeviceptr *pointer);
void vgpu_pool_undo_growth(struct vgpu_growth *growth);

/* Around a call that gives memory back to a pool. */
struct vgpu_pool_free {
  struct vgpu_item item;
  bool known;
};
struct vgpu_pool_free vgpu_pool_begin_free(CUdeviceptr pointer);
void vgpu_pool_end_free(const struct vgpu_pool_free *pooled, CUresult result);

/* Around the end of a pool. What is still allocated from it stays charged until it is freed. */
struct vgpu_pool *vgpu_pool_begin_destroy(CUmemoryPool handle);
void vgpu_pool_end_destroy(struct vgpu_pool *pool, CUmemoryPool handle, CUresult result);

/* Read anew what a pool keeps, or all pools of this process. */
void vgpu_pool_update_charge(struct vgpu_pool *pool);
void vgpu_pools_update_charges(void);

/* Whether there are pools at all: a load. */
bool vgpu_pools_exist(void);

/* Let all pools of a device give back what they do not need, as the driver does when it is out of
 * memory itself. False: there are none. */
bool vgpu_pools_reclaim(int entry);

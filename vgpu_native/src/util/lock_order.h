/* The order of the library's locks. A thread takes a lock only while it holds none of the same rank or
 * of a later one, so that threads cannot wait for one another in a circle.
 *
 * Only builds with assertions record the locks of a thread; in others these functions are empty. */
#pragma once

#include "util/assert.h"

/* From the first to the last that a thread may take. */
enum vgpu_lock_rank {
  VGPU_RANK_CONTEXTS,  /* contexts are created and destroyed */
  VGPU_RANK_GRANULARITY, /* the granularity of a device is measured */
  VGPU_RANK_POOL_LIST, /* pools are added */
  VGPU_RANK_POOL,      /* one pool's charge */
  VGPU_RANK_GRAPHS,    /* one device's graph memory */
  VGPU_RANK_STREAMS,   /* the stream of the last launch */
  VGPU_RANK_SAMPLES,   /* waiting samples are read */
  VGPU_RANK_DEVICES,   /* a device is looked up for the first time */
  VGPU_RANK_MAP,       /* one shard of a map */
  VGPU_RANK_BLOCKS,    /* blocks of small allocations */
  VGPU_RANK_SHARES,    /* what this process shares with others */
  VGPU_RANK_INNER_MAP, /* one shard of a map that is used inside of others */
};

#if VGPU_CHECKS

/* A bit for the rank of each lock that this thread holds. */
extern __thread unsigned vgpu_ranks_held __attribute__((tls_model("initial-exec")));

static inline bool vgpu_rank_held(enum vgpu_lock_rank rank) { return vgpu_ranks_held >> rank & 1; }

static inline void vgpu_rank_take(enum vgpu_lock_rank rank) {
  VGPU_ASSERT(vgpu_ranks_held >> rank == 0);
  vgpu_ranks_held |= 1U << rank;
}

static inline void vgpu_rank_leave(enum vgpu_lock_rank rank) {
  VGPU_ASSERT(vgpu_rank_held(rank));
  vgpu_ranks_held &= ~(1U << rank);
}

static inline bool vgpu_holds_no_lock(void) { return vgpu_ranks_held == 0; }

#else

static inline bool vgpu_rank_held(enum vgpu_lock_rank rank) { return (void)rank, true; }
static inline void vgpu_rank_take(enum vgpu_lock_rank rank) { (void)rank; }
static inline void vgpu_rank_leave(enum vgpu_lock_rank rank) { (void)rank; }
static inline bool vgpu_holds_no_lock(void) { return true; }

#endif

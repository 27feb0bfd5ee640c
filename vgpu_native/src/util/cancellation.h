/* Deferred cancellation. The driver has cancellation points. A thread that ends there would keep a
 * mutex, or its reservation, for ever; so it is cancelled a little later. */
#pragma once

#include <pthread.h>

#include "util/lock_order.h"

/* Stop cancellation of the thread. Returns the earlier state for vgpu_restore_cancellation. */
static inline int vgpu_defer_cancellation(void) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}

static inline void vgpu_restore_cancellation(int before) { pthread_setcancelstate(before, NULL); }

/* A mutex that is held while the driver is called. */
struct vgpu_lock {
  pthread_mutex_t mutex;
  int cancel_state; /* of the thread that holds the mutex */
#if VGPU_CHECKS
  enum vgpu_lock_rank rank;
#endif
};

#if VGPU_CHECKS
#define VGPU_UNLOCKED(lock_rank) {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = lock_rank}
#define VGPU_RANK_OF(lock) ((lock)->rank)
#else
#define VGPU_UNLOCKED(lock_rank) {.mutex = PTHREAD_MUTEX_INITIALIZER}
#define VGPU_RANK_OF(lock) VGPU_RANK_CONTEXTS
#endif

static inline void vgpu_lock(struct vgpu_lock *lock) {
  int before = vgpu_defer_cancellation();
  vgpu_rank_take(VGPU_RANK_OF(lock));
  pthread_mutex_lock(&lock->mutex);
  lock->cancel_state = before;
}

static inline void vgpu_unlock(struct vgpu_lock *lock) {
  int before = lock->cancel_state;
  vgpu_rank_leave(VGPU_RANK_OF(lock));
  pthread_mutex_unlock(&lock->mutex);
  vgpu_restore_cancellation(before);
}

#include "memory/charges/allocation_charge.h"

#include <errno.h>
#include <time.h>

#include "intercept/current_context.h"
#include "memory/granularity/granularity.h"
#include "memory/charges/doubtful_charges.h"
#include "memory/charges/memory_pools.h"
#include "memory/granularity/small_blocks.h"
#include "util/assert.h"
#include "util/cancellation.h"

/* Pauses of 1, 2, 4 and 8 ms. */
#define ATTEMPTS 4

bool vgpu_charge_device(struct vgpu_charge *charge, int entry, uint64_t bytes) {
  *charge = (struct vgpu_charge){.entry = entry, .bytes = bytes};
  if (entry < 0 || vgpu_reserve(entry, bytes)) return true;
  bool any = vgpu_doubts_recheck(entry);
  any = vgpu_pools_reclaim(entry) || any;
  return any && vgpu_reserve(entry, bytes);
}

bool vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes) {
  const struct vgpu_current_context *current = vgpu_current_context();
  bool fits = vgpu_charge_device(charge, current->entry, bytes);
  charge->context = current->context;
  return fits;
}

/* Near the limit, with less than a block left, an allocation may still fit into a block that is charged. The
 * driver chooses the block, which stays charged beyond the limit until then. */
static __attribute__((noinline, cold)) bool borrow_block(struct vgpu_charge *charge) {
  if (!vgpu_blocks_may_fit(charge->entry, charge->in_block)) return false;
  vgpu_reserve_forced(charge->entry, charge->bytes);
  return charge->borrowed = true;
}

bool vgpu_charge_linear(struct vgpu_charge *charge, uint64_t bytes) {
  const struct vgpu_current_context *current = vgpu_current_context();
  const struct vgpu_granularity *granularity = vgpu_granularity(VGPU_LINEAR, current->entry);
  uint64_t block = bytes <= VGPU_SMALL_MAX ? granularity->block : 0;
  bool fits = vgpu_charge_device(charge, current->entry, block ? block : vgpu_granular(granularity, bytes));
  charge->context = current->context;
  charge->block = block;
  charge->in_block = bytes;
  return fits || (charge->block && borrow_block(charge));
}

bool vgpu_charge_retry(const struct vgpu_charge *charge, CUresult result, unsigned *attempt) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY || *attempt == ATTEMPTS) return false;
  /* Without a limit the ledger granted nothing. */
  if (charge->entry < 0 || vgpu_limit(charge->entry) == VGPU_NO_LIMIT) return false;
  int error = errno, cancel_state = vgpu_defer_cancellation();
  nanosleep(&(struct timespec){.tv_nsec = 1000000L << (*attempt)++}, NULL);
  vgpu_restore_cancellation(cancel_state);
  errno = error;
  return true;
}

static void resize(struct vgpu_charge *charge, uint64_t bytes) {
  if (charge->entry >= 0 && bytes > charge->bytes) vgpu_reserve_forced(charge->entry, bytes - charge->bytes);
  if (charge->entry >= 0 && bytes < charge->bytes) vgpu_release(charge->entry, charge->bytes - bytes);
  charge->bytes = bytes;
}

void vgpu_charge_resize_linear(struct vgpu_charge *charge, uint64_t bytes) {
  if (charge->block && bytes <= VGPU_SMALL_MAX) return;
  const struct vgpu_granularity *granularity = vgpu_granularity(VGPU_LINEAR, charge->entry);
  charge->block = 0;
  resize(charge, vgpu_granular(granularity, bytes));
}

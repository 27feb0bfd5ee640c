#include "memory/allocation_charge.h"

#include <errno.h>
#include <time.h>

#include "intercept/current_context.h"
#include "memory/memory_pools.h"
#include "util/assert.h"
#include "util/cancellation.h"

struct vgpu_map vgpu_memory;
struct vgpu_map vgpu_arrays;

/* Pauses of 1, 2, 4 and 8 ms. */
#define ATTEMPTS 4

static int entry_in(uint64_t note) { return (int)(note & 0xff); }
static bool is_in(uint64_t note, CUcontext context) { return note >> 8 == (uint64_t)(uintptr_t)context; }

/* An item's note: the context in the upper 56 bits, of which pointers use 47, and the entry. */
static uint64_t note_of(const struct vgpu_charge *charge) {
  uint64_t note = (uint64_t)(uintptr_t)charge->context << 8 | (uint64_t)charge->entry;
  VGPU_ASSERT(entry_in(note) == charge->entry && is_in(note, charge->context));
  return note;
}

bool vgpu_charge_device(struct vgpu_charge *charge, int entry, uint64_t bytes) {
  *charge = (struct vgpu_charge){.entry = entry, .bytes = bytes};
  if (entry < 0 || vgpu_reserve(entry, bytes)) return true;
  return vgpu_pools_reclaim(entry) && vgpu_reserve(entry, bytes);
}

bool vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes) {
  const struct vgpu_current_context *current = vgpu_current_context();
  bool fits = vgpu_charge_device(charge, current->entry, bytes);
  charge->context = current->context;
  return fits;
}

bool vgpu_charge_store(struct vgpu_map *map, const struct vgpu_charge *charge, uint64_t key) {
  if (charge->entry < 0) return true;
  struct vgpu_item old;
  if (!vgpu_map_put(map, (struct vgpu_item){key, charge->bytes, note_of(charge)}, &old)) {
    vgpu_charge_cancel(charge);
    return false;
  }
  /* The driver returned this address before, and no hook saw it freed. */
  if (old.key) vgpu_release(entry_in(old.note), old.bytes);
  return true;
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

void vgpu_charge_cancel(const struct vgpu_charge *charge) {
  if (charge->entry >= 0) vgpu_release(charge->entry, charge->bytes);
}

void vgpu_charge_resize(struct vgpu_charge *charge, uint64_t bytes) {
  if (charge->entry >= 0 && bytes > charge->bytes) vgpu_reserve_forced(charge->entry, bytes - charge->bytes);
  if (charge->entry >= 0 && bytes < charge->bytes) vgpu_release(charge->entry, charge->bytes - bytes);
  charge->bytes = bytes;
}

void vgpu_charge_freed(struct vgpu_map *map, const struct vgpu_item *item, CUresult result) {
  struct vgpu_item old;
  if (result == CUDA_SUCCESS) vgpu_release(entry_in(item->note), item->bytes);
  /* If there is no memory to put it back, it stays charged, which is safe. The table just held the item,
   * so it seldom has to grow. */
  else vgpu_map_put(map, *item, &old);
}

static bool release_if_ended(const struct vgpu_item *item, const void *context) {
  if (!is_in(item->note, (CUcontext)context)) return false;
  vgpu_release(entry_in(item->note), item->bytes);
  return true;
}

void vgpu_charges_end(struct vgpu_map *map, CUcontext context) {
  if (context) vgpu_map_sweep(map, release_if_ended, context);
}

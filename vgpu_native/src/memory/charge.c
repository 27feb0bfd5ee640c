#include "memory/charge.h"

#include <errno.h>
#include <time.h>

#include "intercept/current_context.h"
#include "memory/pools.h"
#include "util/cancel_shelter.h"

struct vgpu_map vgpu_memory;
struct vgpu_map vgpu_arrays;

/* Pauses of 1, 2, 4 and 8 ms. */
#define ATTEMPTS 4

/* An item's note: the context in the upper 56 bits, of which pointers use 47, and the entry. */
static uint64_t note_of(const struct vgpu_claim *claim) {
  return (uint64_t)(uintptr_t)claim->context << 8 | (uint64_t)claim->entry;
}

static int entry_in(uint64_t note) { return (int)(note & 0xff); }

bool vgpu_claim(struct vgpu_claim *claim, int entry, uint64_t bytes) {
  *claim = (struct vgpu_claim){.entry = entry, .bytes = bytes};
  if (entry < 0 || vgpu_reserve(entry, bytes)) return true;
  return vgpu_pools_reclaim(entry) && vgpu_reserve(entry, bytes);
}

bool vgpu_claim_now(struct vgpu_claim *claim, uint64_t bytes) {
  const struct vgpu_here *here = vgpu_here();
  bool fits = vgpu_claim(claim, here->entry, bytes);
  claim->context = here->context;
  return fits;
}

bool vgpu_claim_keep(struct vgpu_map *map, const struct vgpu_claim *claim, uint64_t key) {
  if (claim->entry < 0) return true;
  struct vgpu_item old;
  if (!vgpu_map_put(map, (struct vgpu_item){key, claim->bytes, note_of(claim)}, &old)) {
    vgpu_claim_drop(claim);
    return false;
  }
  /* The driver gave this address before, and nobody told us that it was freed. */
  if (old.key) vgpu_release(entry_in(old.note), old.bytes);
  return true;
}

bool vgpu_claim_again(const struct vgpu_claim *claim, CUresult result, unsigned *attempt) {
  if (result != CUDA_ERROR_OUT_OF_MEMORY || *attempt == ATTEMPTS) return false;
  /* Without a limit the ledger promised nothing. */
  if (claim->entry < 0 || vgpu_limit(claim->entry) == VGPU_NO_LIMIT) return false;
  int error = errno, shelter = vgpu_shelter();
  nanosleep(&(struct timespec){.tv_nsec = 1000000L << (*attempt)++}, NULL);
  vgpu_end_shelter(shelter);
  errno = error;
  return true;
}

void vgpu_claim_drop(const struct vgpu_claim *claim) {
  if (claim->entry >= 0) vgpu_release(claim->entry, claim->bytes);
}

void vgpu_claim_correct(struct vgpu_claim *claim, uint64_t bytes) {
  if (claim->entry >= 0 && bytes > claim->bytes) vgpu_charge(claim->entry, bytes - claim->bytes);
  if (claim->entry >= 0 && bytes < claim->bytes) vgpu_release(claim->entry, claim->bytes - bytes);
  claim->bytes = bytes;
}

void vgpu_item_freed(struct vgpu_map *map, const struct vgpu_item *item, CUresult result) {
  struct vgpu_item old;
  if (result == CUDA_SUCCESS) vgpu_release(entry_in(item->note), item->bytes);
  /* Without room to put it back it stays charged: that is the safe side, and a table that held it a
   * moment ago hardly ever has to grow for it. */
  else vgpu_map_put(map, *item, &old);
}

static bool ended(const struct vgpu_item *item, const void *context) {
  if (item->note >> 8 != (uint64_t)(uintptr_t)context) return false;
  vgpu_release(entry_in(item->note), item->bytes);
  return true;
}

void vgpu_items_end(struct vgpu_map *map, CUcontext context) {
  if (context) vgpu_map_sweep(map, ended, context);
}

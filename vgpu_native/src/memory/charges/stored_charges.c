/* The charges of allocations, stored by pointer or handle until they are freed or their context ends. */
#include "core/shared_memory.h"
#include "memory/charges/allocation_charge.h"
#include "memory/granularity/small_blocks.h"
#include "util/assert.h"

struct vgpu_map vgpu_memory;
struct vgpu_map vgpu_arrays;

/* Bits of a note: the block is charged, or a share, and not the item. */
#define IN_BLOCK 0x80
#define SHARED 0x40
#define LEAVING 0x20 /* a stream will free it */

/* The shares of allocations: pointer to number. */
static struct vgpu_map shares = {.inner = true};

static int entry_in(uint64_t note) { return (int)(note & 0x1f); }
static bool is_in(uint64_t note, CUcontext context) { return note >> 8 == (uint64_t)(uintptr_t)context; }

/* An item's note: the context in the upper 56 bits, of which pointers use 47, bits, and the entry. */
static uint64_t note_of(const struct vgpu_charge *charge) {
  uint64_t note = (uint64_t)(uintptr_t)charge->context << 8 | (uint64_t)charge->entry;
  if (charge->block) note |= IN_BLOCK;
  VGPU_ASSERT(entry_in(note) == charge->entry && is_in(note, charge->context));
  return note;
}

static __attribute__((noinline)) void release_shared(const struct vgpu_item *item) {
  struct vgpu_item share;
  if (item->note & SHARED) {
    if (vgpu_map_take(&shares, item->key, &share)) vgpu_share_leave((int)share.note);
  } else if (item->note & IN_BLOCK) vgpu_block_leave(entry_in(item->note), item->key, item->bytes);
}

static inline void release_item(const struct vgpu_item *item) {
  if (__builtin_expect(item->note & (SHARED | IN_BLOCK), 0)) release_shared(item);
  else vgpu_release(entry_in(item->note), item->bytes);
}

/* Count a small allocation in the block that the driver chose. False: the block is new, and charged beyond
 * the limit, or there is no memory to store it. */
static __attribute__((noinline)) bool enter_block(const struct vgpu_charge *charge, uint64_t key) {
  enum vgpu_block_state state = vgpu_block_enter(charge->entry, key, charge->block, charge->in_block);
  if (state == VGPU_BLOCK_NEW && charge->borrowed) return vgpu_block_leave(charge->entry, key, charge->in_block), false;
  if (state != VGPU_BLOCK_NEW) vgpu_charge_cancel(charge);
  return state != VGPU_BLOCK_UNSTORED;
}

bool vgpu_charge_store(struct vgpu_map *map, const struct vgpu_charge *charge, uint64_t key) {
  if (charge->entry < 0) return true;
  if (charge->block && !enter_block(charge, key)) return false;
  uint64_t bytes = charge->block ? charge->in_block : charge->bytes, note = note_of(charge);
  struct vgpu_item old;
  if (!vgpu_map_put(map, (struct vgpu_item){key, bytes, note}, &old)) {
    release_item(&(struct vgpu_item){key, bytes, note});
    return false;
  }
  /* The driver returned this address before, and no hook saw it freed. */
  if (old.key) release_item(&old);
  return true;
}

/* Whether an allocation is charged by itself, and became one that a share is charged for. */
static bool mark_shared(const struct vgpu_item *item, int share) {
  struct vgpu_item old, entry = {item->key, item->bytes, (uint64_t)share};
  if (!vgpu_map_put(&shares, entry, &old)) return false;
  return vgpu_map_mark(&vgpu_memory, item->key, SHARED, &old) && !(old.note & SHARED);
}

void vgpu_charge_share(uint64_t pointer, uint64_t key) {
  struct vgpu_item item;
  struct vgpu_item known;
  if (!vgpu_map_find(&vgpu_memory, pointer, &item)) return;
  if (item.note & SHARED) {
    if (vgpu_map_find(&shares, pointer, &known)) vgpu_share_rename((int)known.note, key);
    return;
  }
  if (item.note & IN_BLOCK) return vgpu_block_share(entry_in(item.note), pointer, key);
  int share = vgpu_share_begin(entry_in(item.note), item.bytes, key);
  if (share < 0) return;
  if (mark_shared(&item, share)) vgpu_release(entry_in(item.note), item.bytes);
  else vgpu_share_leave(share);
}

void vgpu_charge_freed(struct vgpu_map *map, const struct vgpu_item *item, CUresult result) {
  struct vgpu_item old;
  if (result == CUDA_SUCCESS) release_item(item);
  /* If there is no memory to put it back, it stays charged, which is safe. The table just held the item,
   * so it seldom has to grow. */
  else vgpu_map_put(map, *item, &old);
}

uint32_t vgpu_doubted;

void vgpu_charge_doubt(int entry) {
  if (entry >= 0 && entry < VGPU_DEVICES_MAX) __atomic_fetch_or(&vgpu_doubted, 1U << entry, __ATOMIC_RELAXED);
}

bool vgpu_charge_leaving(uint64_t pointer, struct vgpu_item *item) {
  return vgpu_map_mark(&vgpu_memory, pointer, LEAVING, item);
}

bool vgpu_charge_is_leaving(const struct vgpu_item *item) { return item->note & LEAVING; }

void vgpu_charge_replaced(uint64_t pointer) {
  struct vgpu_item item;
  if (vgpu_map_take(&vgpu_memory, pointer, &item)) release_item(&item);
}

int vgpu_charge_entry(const struct vgpu_item *item) { return entry_in(item->note); }
CUcontext vgpu_charge_context(const struct vgpu_item *item) { return (CUcontext)(uintptr_t)(item->note >> 8); }

bool vgpu_charge_ended(const struct vgpu_item *item) {
  bool same = vgpu_map_take_same(&vgpu_memory, item);
  if (same) release_item(item);
  return same;
}

void vgpu_charge_inherit(struct vgpu_map *map, const struct vgpu_item *item, CUcontext heir) {
  struct vgpu_item old, now = *item;
  now.note = (uint64_t)(uintptr_t)heir << 8 | (item->note & 0xff);
  if (vgpu_map_take_same(map, item) && !vgpu_map_put(map, now, &old)) release_item(item);
}

static bool release_if_ended(const struct vgpu_item *item, const void *context) {
  if (!is_in(item->note, (CUcontext)context)) return false;
  release_item(item);
  return true;
}

void vgpu_charges_end(struct vgpu_map *map, CUcontext context) {
  if (context) vgpu_map_sweep(map, release_if_ended, context);
}

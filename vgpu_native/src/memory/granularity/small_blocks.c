/* The driver puts small allocations into blocks of a page, at neighbouring addresses. One allocation keeps its
 * whole block in use. So a block is found by address, and charged as a whole. */
#include "memory/granularity/small_blocks.h"

#include "core/shared_memory.h"
#include "util/assert.h"
#include "util/cancellation.h"
#include "util/fork_handlers.h"
#include "util/handle_map.h"
#include "vgpu.h"

/* By the block's address, with the entry in the low bits; `bytes` is its size. The note counts allocations in its
 * lower half; the upper half is the number of the share that is charged instead, plus one. */
static struct vgpu_map blocks = {.inner = true};

static struct vgpu_lock lock = VGPU_UNLOCKED(VGPU_RANK_BLOCKS);
static bool watched;

/* Of each device: the size of its blocks, their number and the bytes of the allocations in them. */
static struct blocks_of_device {
  uint64_t size, count, live;
} devices[VGPU_DEVICES_MAX];

static void forget(void) {
  lock = (struct vgpu_lock)VGPU_UNLOCKED(VGPU_RANK_BLOCKS);
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) devices[i] = (struct blocks_of_device){0};
}

static uint64_t key_of(int entry, uint64_t address, uint64_t size) {
  VGPU_ASSERT(size && !(size & (size - 1)) && entry >= 0 && entry < VGPU_DEVICES_MAX);
  return (address & ~(size - 1)) | (uint64_t)entry;
}

static enum vgpu_block_state enter(struct blocks_of_device *device, uint64_t key) {
  struct vgpu_item item;
  if (vgpu_map_count(&blocks, key, 1, &item)) return VGPU_BLOCK_CHARGED;
  if (!vgpu_map_put(&blocks, (struct vgpu_item){key, device->size, 1}, &item)) return VGPU_BLOCK_UNSTORED;
  device->count++;
  return VGPU_BLOCK_NEW;
}

enum vgpu_block_state vgpu_block_enter(int entry, uint64_t address, uint64_t size, uint64_t bytes) {
  struct blocks_of_device *device = &devices[entry];
  vgpu_reset_in_children(&watched, forget);
  vgpu_lock(&lock);
  device->size = size;
  enum vgpu_block_state state = enter(device, key_of(entry, address, size));
  if (state != VGPU_BLOCK_UNSTORED) device->live += bytes;
  vgpu_unlock(&lock);
  return state;
}

void vgpu_block_leave(int entry, uint64_t address, uint64_t bytes) {
  struct blocks_of_device *device = &devices[entry];
  struct vgpu_item item;
  vgpu_lock(&lock);
  bool known = vgpu_map_count(&blocks, key_of(entry, address, device->size), -1, &item);
  VGPU_ASSERT(known && device->live >= bytes);
  bool last = known && !(uint32_t)item.note;
  device->live -= bytes;
  device->count -= last;
  VGPU_ASSERT(device->count || !device->live);
  vgpu_unlock(&lock);
  if (last && item.note >> 32) vgpu_share_leave((int)(item.note >> 32) - 1);
  else if (last) vgpu_release(entry, item.bytes);
}

void vgpu_block_share(int entry, uint64_t address, uint64_t key) {
  struct blocks_of_device *device = &devices[entry];
  struct vgpu_item item;
  vgpu_lock(&lock);
  uint64_t block = device->size ? key_of(entry, address, device->size) : 0;
  bool known = vgpu_map_find(&blocks, block, &item);
  if (known && item.note >> 32) {
    vgpu_share_rename((int)(item.note >> 32) - 1, key);
    known = false;
  }
  int share = known ? vgpu_share_begin(entry, item.bytes, key) : -1;
  if (share >= 0) vgpu_map_mark(&blocks, block, (uint64_t)(share + 1) << 32, &item);
  vgpu_unlock(&lock);
  if (share >= 0) vgpu_release(entry, item.bytes);
}

bool vgpu_blocks_may_fit(int entry, uint64_t bytes) {
  const struct blocks_of_device *device = &devices[entry];
  uint64_t all = __atomic_load_n(&device->count, __ATOMIC_RELAXED) * device->size;
  uint64_t live = __atomic_load_n(&device->live, __ATOMIC_RELAXED);
  return all > live && all - live >= bytes;
}

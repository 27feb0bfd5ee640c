/* What is charged, by the pointer or handle that the driver gave for it.
 *
 * An open-addressed table in shards, each under a spin bit that is held for a few loads and stores;
 * every operation takes the same time with one item as with a million. A child of a fork begins with
 * empty maps: what its parent holds is charged to the parent. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define VGPU_SHARDS 64

struct vgpu_item {
  uint64_t key;   /* never 0, which marks a free place */
  uint64_t bytes;
  uint64_t note;  /* whatever the owner of the map needs to know besides */
};

struct vgpu_shard {
  uint32_t lock;
  uint32_t bits;  /* of the number of places */
  uint64_t used;
  struct vgpu_item *items;
} __attribute__((aligned(64)));

struct vgpu_map {
  struct vgpu_shard shards[VGPU_SHARDS];
  struct vgpu_map *next;
  bool listed;
};

/* Add an item. `old` becomes the one with its key that was still there, or has key 0: the driver gave
 * an address anew that nobody was seen to free. False: there is no memory for a larger table. Key 0 is nothing. */
bool vgpu_map_put(struct vgpu_map *map, struct vgpu_item item, struct vgpu_item *old);

/* Remove an item, or only look at it; false: there is none. */
bool vgpu_map_take(struct vgpu_map *map, uint64_t key, struct vgpu_item *item);
bool vgpu_map_find(struct vgpu_map *map, uint64_t key, struct vgpu_item *item);

/* Add to the count in the low 32 bits of an item's note, and remove the item when that becomes 0.
 * `item` is how it was left; false: there is none. */
bool vgpu_map_count(struct vgpu_map *map, uint64_t key, int delta, struct vgpu_item *item);

/* Remove every item for which `ended` says so; it is called under the shard's lock. */
void vgpu_map_sweep(struct vgpu_map *map, bool (*ended)(const struct vgpu_item *, const void *),
                    const void *data);

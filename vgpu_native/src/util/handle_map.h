/* A map from the driver's pointers and handles to the charges for them.
 *
 * An open-addressed table in shards. Each shard has a spin lock that is held for a few loads and
 * stores. An operation takes the same time with one item as with a million. A child of a fork starts
 * with empty maps, because its parent's memory is charged to the parent. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define VGPU_SHARDS 64

struct vgpu_item {
  uint64_t key;   /* never 0, which marks a free place */
  uint64_t bytes;
  uint64_t note;  /* more data of the map's owner */
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
  bool inner; /* it may be used while a shard of another map is locked */
};

/* Add an item; an item with key 0 is ignored. `old` becomes the earlier item with the same key, which
 * exists if the driver returned an address again after a free that no hook saw; without one its key is
 * 0. False: there is no memory for a larger table. */
bool vgpu_map_put(struct vgpu_map *map, struct vgpu_item item, struct vgpu_item *old);

/* Remove an item, or only read it. False: there is none. */
bool vgpu_map_take(struct vgpu_map *map, uint64_t key, struct vgpu_item *item);
bool vgpu_map_find(struct vgpu_map *map, uint64_t key, struct vgpu_item *item);

/* Remove an item only if it is still the same. False: it is not. */
bool vgpu_map_take_same(struct vgpu_map *map, const struct vgpu_item *item);

/* Set bits of an item's note. `item` becomes its state before. False: there is none. */
bool vgpu_map_mark(struct vgpu_map *map, uint64_t key, uint64_t bits, struct vgpu_item *item);

/* Add to the count in the low 32 bits of an item's note, and remove the item when the count becomes 0.
 * `item` becomes its last state. False: there is none. */
bool vgpu_map_count(struct vgpu_map *map, uint64_t key, int delta, struct vgpu_item *item);

/* Remove every item for which `ended` returns true. It is called under the shard's lock. */
void vgpu_map_sweep(struct vgpu_map *map, bool (*ended)(const struct vgpu_item *, const void *),
                    const void *data);

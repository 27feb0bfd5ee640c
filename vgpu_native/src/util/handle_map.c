#include "util/handle_map.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "util/assert.h"
#include "util/fork_handlers.h"
#include "util/lock_order.h"

#define SMALLEST_BITS 4
#define SPINS 200
#define SOUND_BITS_MAX 8

static struct vgpu_map *maps;
static bool watched;

/* In the child of a fork the tables are the parent's, and a lock may be held by a thread that does not
 * exist here. The tables are not freed, because one may have been half grown at the fork. */
static void forget(void) {
  for (struct vgpu_map *map = maps; map; map = map->next) {
    memset(map->shards, 0, sizeof map->shards);
  }
}

/* List a map for `forget`. */
static void list(struct vgpu_map *map) {
  if (__atomic_exchange_n(&map->listed, true, __ATOMIC_ACQ_REL)) return;
  map->next = __atomic_load_n(&maps, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&maps, &map->next, map, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED)) {
  }
  vgpu_reset_in_children(&watched, forget);
}

static bool try_lock(struct vgpu_shard *shard) {
  return !__atomic_exchange_n(&shard->lock, 1, __ATOMIC_ACQUIRE);
}

/* The holder of the lock may not be running: there can be fewer processors than threads. */
static __attribute__((noinline)) void wait_for(struct vgpu_shard *shard) {
  unsigned spins = 0;
  do {
    while (__atomic_load_n(&shard->lock, __ATOMIC_RELAXED)) {
      if (++spins > SPINS) sched_yield();
    }
  } while (!try_lock(shard));
}

static inline enum vgpu_lock_rank rank_of(const struct vgpu_map *map) {
  return map->inner ? VGPU_RANK_INNER_MAP : VGPU_RANK_MAP;
}

static inline void lock(const struct vgpu_map *map, struct vgpu_shard *shard) {
  vgpu_rank_take(rank_of(map));
  if (!try_lock(shard)) wait_for(shard);
}

static inline void unlock(const struct vgpu_map *map, struct vgpu_shard *shard) {
  vgpu_rank_leave(rank_of(map));
  __atomic_store_n(&shard->lock, 0, __ATOMIC_RELEASE);
}

/* Addresses are multiples of 512 or more: the multiplication carries the differing bits to the top. */
static uint64_t hash(uint64_t key) { return (key ^ key >> 32) * 0x9e3779b97f4a7c15ULL; }

static struct vgpu_shard *shard_of(struct vgpu_map *map, uint64_t key) {
  return &map->shards[hash(key) >> 58];
}

static inline uint64_t mask_of(const struct vgpu_shard *shard) { return (1ULL << shard->bits) - 1; }

static uint64_t home_of(const struct vgpu_shard *shard, uint64_t key) {
  return hash(key) << 6 >> (64 - shard->bits);
}

/* The place of a key, or the free one where it would go; NULL without a table. */
static inline struct vgpu_item *place_of(const struct vgpu_shard *shard, uint64_t key) {
  if (!shard->items) return NULL;
  uint64_t at = home_of(shard, key);
  while (shard->items[at].key && shard->items[at].key != key) at = (at + 1) & mask_of(shard);
  return &shard->items[at];
}

/* Whether a search finds each item of a shard, and the count of items is exact. Large tables are too
 * slow to walk after each change. */
static bool is_sound(const struct vgpu_shard *shard) {
  uint64_t items = 0;
  if (!shard->items || shard->bits > SOUND_BITS_MAX) return true;
  for (uint64_t i = 0; i <= mask_of(shard); i++) {
    if (!shard->items[i].key) continue;
    if (place_of(shard, shard->items[i].key) != &shard->items[i]) return false;
    items++;
  }
  return items == shard->used;
}

static bool grow(struct vgpu_shard *shard) {
  /* Not a copy: others are trying the lock in it. */
  struct vgpu_shard larger = {.bits = shard->items ? shard->bits + 1 : SMALLEST_BITS};
  larger.items = calloc(1ULL << larger.bits, sizeof *larger.items);
  if (!larger.items) return false;
  for (uint64_t i = 0; shard->items && i <= mask_of(shard); i++) {
    if (shard->items[i].key) *place_of(&larger, shard->items[i].key) = shard->items[i];
  }
  free(shard->items);
  shard->bits = larger.bits;
  shard->items = larger.items;
  VGPU_ASSERT_EXPENSIVE(is_sound(shard));
  return true;
}

/* Free a place, and move up the items behind it, so that no search ends too early. */
static void clear(struct vgpu_shard *shard, uint64_t hole) {
  uint64_t mask = mask_of(shard);
  VGPU_ASSERT(shard->used > 0 && shard->items[hole].key != 0);
  for (uint64_t at = (hole + 1) & mask; shard->items[at].key; at = (at + 1) & mask) {
    uint64_t home = home_of(shard, shard->items[at].key);
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    shard->items[hole] = shard->items[at];
    hole = at;
  }
  shard->items[hole].key = 0;
  shard->used--;
  VGPU_ASSERT_EXPENSIVE(is_sound(shard));
}

bool vgpu_map_put(struct vgpu_map *map, struct vgpu_item item, struct vgpu_item *old) {
  struct vgpu_shard *shard = shard_of(map, item.key);
  old->key = 0;
  if (!item.key) return true;
  if (!__atomic_load_n(&map->listed, __ATOMIC_RELAXED)) list(map);
  lock(map, shard);
  bool room = shard->items && (shard->used + 1) * 4 <= (mask_of(shard) + 1) * 3;
  bool done = room || grow(shard);
  if (done) {
    struct vgpu_item *place = place_of(shard, item.key);
    if (place->key) *old = *place;
    else shard->used++;
    *place = item;
    VGPU_ASSERT(shard->used <= mask_of(shard)); /* a search ends at a free place */
    VGPU_ASSERT_EXPENSIVE(is_sound(shard));
  }
  unlock(map, shard);
  return done;
}

/* Find an item under its shard's lock. */
static inline struct vgpu_item *found(struct vgpu_shard *shard, uint64_t key, struct vgpu_item *item) {
  struct vgpu_item *place = key ? place_of(shard, key) : NULL;
  if (!place || !place->key) return NULL;
  *item = *place;
  return place;
}

bool vgpu_map_take(struct vgpu_map *map, uint64_t key, struct vgpu_item *item) {
  struct vgpu_shard *shard = shard_of(map, key);
  lock(map, shard);
  struct vgpu_item *place = found(shard, key, item);
  if (place) clear(shard, (uint64_t)(place - shard->items));
  unlock(map, shard);
  return place != NULL;
}

bool vgpu_map_find(struct vgpu_map *map, uint64_t key, struct vgpu_item *item) {
  struct vgpu_shard *shard = shard_of(map, key);
  lock(map, shard);
  struct vgpu_item *place = found(shard, key, item);
  unlock(map, shard);
  return place != NULL;
}

bool vgpu_map_take_same(struct vgpu_map *map, const struct vgpu_item *item) {
  struct vgpu_shard *shard = shard_of(map, item->key);
  struct vgpu_item now;
  lock(map, shard);
  struct vgpu_item *place = found(shard, item->key, &now);
  bool same = place && now.bytes == item->bytes && now.note == item->note;
  if (same) clear(shard, (uint64_t)(place - shard->items));
  unlock(map, shard);
  return same;
}

bool vgpu_map_mark(struct vgpu_map *map, uint64_t key, uint64_t bits, struct vgpu_item *item) {
  struct vgpu_shard *shard = shard_of(map, key);
  lock(map, shard);
  struct vgpu_item *place = found(shard, key, item);
  if (place) place->note |= bits;
  unlock(map, shard);
  return place != NULL;
}

bool vgpu_map_count(struct vgpu_map *map, uint64_t key, int delta, struct vgpu_item *item) {
  struct vgpu_shard *shard = shard_of(map, key);
  lock(map, shard);
  struct vgpu_item *place = found(shard, key, item);
  if (place) {
    VGPU_ASSERT((uint32_t)place->note > 0);
    uint32_t count = (uint32_t)place->note + (uint32_t)delta;
    place->note = (place->note & ~0xffffffffULL) | count;
    *item = *place;
    if (!count) clear(shard, (uint64_t)(place - shard->items));
  }
  unlock(map, shard);
  return place != NULL;
}

void vgpu_map_sweep(struct vgpu_map *map, bool (*ended)(const struct vgpu_item *, const void *),
                    const void *data) {
  for (struct vgpu_shard *shard = map->shards; shard < map->shards + VGPU_SHARDS; shard++) {
    lock(map, shard);
    for (uint64_t i = 0; shard->items && i <= mask_of(shard);) {
      /* After a removal another item may have come to the same place. */
      if (shard->items[i].key && ended(&shard->items[i], data)) clear(shard, i);
      else i++;
    }
    unlock(map, shard);
  }
}

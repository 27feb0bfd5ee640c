/* map_model SEED: compare the map with a list that is searched linearly, with colliding keys; then use it by
 * several threads at once, each with its own keys and all with one shared key. */
#include "util/assert.c"
#include "util/handle_map.c"

#include <pthread.h>
#include <stdio.h>

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: false: %s\n", __FILE__, __LINE__, #condition);  \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

#define KEYS 3000
#define THREADS 4
#define ROUNDS 20000

static struct vgpu_map map;
static struct vgpu_item model[KEYS]; /* key 0: absent */
static uint64_t state = 1;

static uint64_t chance(uint64_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % below;
}

/* Few shards and homes, so that runs of places are long and wrap around. */
static uint64_t key_of(uint64_t i) { return (i % 7 + 1) << 48 | (i + 1) * 512; }

static void compare(uint64_t i) {
  struct vgpu_item item;
  bool there = vgpu_map_find(&map, key_of(i), &item);
  CHECK(there == (model[i].key != 0));
  CHECK(!there || (item.bytes == model[i].bytes && item.note == model[i].note));
}

static void step(void) {
  uint64_t i = chance(KEYS);
  struct vgpu_item item = {key_of(i), chance(1000), 1 + chance(3)}, old;
  switch (chance(3)) {
    case 0:
      CHECK(vgpu_map_put(&map, item, &old));
      CHECK(old.key == model[i].key && (!old.key || old.bytes == model[i].bytes));
      model[i] = item;
      break;
    case 1:
      CHECK(vgpu_map_take(&map, item.key, &old) == (model[i].key != 0));
      model[i].key = 0;
      break;
    default:
      CHECK(vgpu_map_count(&map, item.key, -1, &old) == (model[i].key != 0));
      if (model[i].key && !--model[i].note) model[i].key = 0;
  }
  compare(i);
  compare(chance(KEYS));
}

static bool odd(const struct vgpu_item *item, const void *data) { return item->bytes % 2 && !data; }

static void sequence(void) {
  for (int i = 0; i < 200000; i++) step();
  for (uint64_t i = 0; i < KEYS; i++) compare(i);
  vgpu_map_sweep(&map, odd, NULL);
  for (uint64_t i = 0; i < KEYS; i++) {
    if (model[i].key && odd(&model[i], NULL)) model[i].key = 0;
    compare(i);
  }
}

static uint64_t shared_puts;

static void *thread(void *number) {
  uint64_t mine = (uint64_t)(uintptr_t)number, puts = 0;
  struct vgpu_item old;
  for (uint64_t i = 0; i < ROUNDS; i++) {
    uint64_t key = (mine << 40 | (i % 500 + 1)) * 512;
    CHECK(vgpu_map_put(&map, (struct vgpu_item){key, i, mine}, &old) && !old.key);
    /* All threads put and take this key: each put is taken once. */
    CHECK(vgpu_map_put(&map, (struct vgpu_item){512, 1, 1}, &old));
    puts += !old.key;
    CHECK(vgpu_map_take(&map, key, &old) && old.bytes == i && old.note == mine);
    puts -= vgpu_map_take(&map, 512, &old);
  }
  __atomic_add_fetch(&shared_puts, puts, __ATOMIC_RELAXED);
  return NULL;
}

static void threads(void) {
  pthread_t running[THREADS];
  struct vgpu_item item;
  vgpu_map_take(&map, 512, &item);
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&running[i], NULL, thread, (void *)(100 + i));
  for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
  CHECK(shared_puts == vgpu_map_take(&map, 512, &item));
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  state = strtoull(arguments[1], NULL, 0) * 0x9e3779b97f4a7c15ULL | 1;
  sequence();
  threads();
  return 0;
}

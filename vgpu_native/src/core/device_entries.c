/* Devices and their entries in the region. A device has different ordinals in different processes, but
 * one uuid: its entry is the first place that holds the uuid, or that is still empty. */
#include "core/device_entries.h"

#include <sched.h>
#include <string.h>

#include "core/limits/environment.h"
#include "core/process_state.h"
#include "util/assert.h"
#include "util/lock_order.h"
#include "vgpu.h"

enum { UUID = 16, WORDS = 5 }; /* `GPU-` and 36 letters are five words; the sixth stays zero */
typedef uint64_t __attribute__((may_alias)) word;

/* The known devices, by entry. They outlive a fork, because callers keep the numbers. */
static struct {
  bool known, assumed;
  unsigned char uuid[UUID];
  char text[VGPU_UUID_BYTES];
  struct vgpu_source source;
} entries[VGPU_DEVICES_MAX];

static bool known(int entry) { return __atomic_load_n(&entries[entry].known, __ATOMIC_ACQUIRE); }

const struct vgpu_source *vgpu_source_of(int entry) {
  VGPU_ASSERT(entry >= 0 && entry < VGPU_DEVICES_MAX);
  return known(entry) ? &entries[entry].source : NULL;
}

void vgpu_uuid_text(const unsigned char uuid[UUID], char text[VGPU_UUID_BYTES]) {
  static const char hex[] = "0123456789abcdef";
  memset(text, 0, VGPU_UUID_BYTES);
  memcpy(text, "GPU-", 4);
  for (unsigned i = 0, at = 4; i < UUID; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    text[at++] = hex[uuid[i] >> 4];
    text[at++] = hex[uuid[i] & 15];
  }
}

/* Claim a place in the region for a uuid, word by word from the first. Returns whether it holds the
 * uuid. A written word never changes. A process that finds its own words continues where another was
 * killed, and one that finds other words takes the next place. So a uuid has one place, without a
 * lock. */
static bool claim(vgpu_region *region, int place, const char *text) {
  word *words = (word *)region->uuid[place];
  for (unsigned i = 0; i < WORDS; i++) {
    word mine, there = 0;
    memcpy(&mine, text + i * sizeof mine, sizeof mine);
    __atomic_compare_exchange_n(&words[i], &there, mine, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (there && there != mine) return false;
  }
  return true;
}

static int place_of(vgpu_region *region, const char *text) {
  for (int place = 0; place < VGPU_DEVICES_MAX; place++)
    if (claim(region, place, text)) return place;
  return -1;
}

void vgpu_entries_reclaim(vgpu_region *region) {
  for (int entry = 0; entry < VGPU_DEVICES_MAX; entry++) {
    if (!known(entry) || claim(region, entry, entries[entry].text)) continue;
    vgpu_log(VGPU_ERROR,
             "the region was changed for another while %s was in use; no more of it is given. "
             "Start the program again",
             entries[entry].text);
    entries[entry].source = (struct vgpu_source){.page = -1, .memory = 0, .cores = 1};
    entries[entry].assumed = false;
  }
}

static int find(const unsigned char uuid[UUID]) {
  for (int entry = 0; entry < VGPU_DEVICES_MAX; entry++)
    if (known(entry) && !memcmp(entries[entry].uuid, uuid, UUID)) return entry;
  return -1;
}

/* Read the environment's limits of an ordinal. Other threads may read the source meanwhile. */
static void limits_from_environment(struct vgpu_source *source, unsigned ordinal) {
  __atomic_store_n(&source->memory, vgpu_environment_memory(ordinal), __ATOMIC_RELAXED);
  __atomic_store_n(&source->cores, vgpu_environment_cores(ordinal), __ATOMIC_RELAXED);
}

/* Whether an entry's place in the region holds its uuid. */
static bool is_claimed(const vgpu_region *region, int entry) {
  return !memcmp(region->uuid[entry], entries[entry].text, WORDS * sizeof(word));
}

/* Whether a place is that of another device, which lost it when the region was replaced. Its number is in use. */
static bool is_taken(int entry) { return entry >= 0 && known(entry); }

static int register_device(const unsigned char uuid[UUID], unsigned ordinal, bool assumed) {
  VGPU_ASSERT(vgpu_rank_held(VGPU_RANK_DEVICES));
  vgpu_region *region = vgpu_process.mapped.region;
  if (!region) return VGPU_DENIED; /* the process attaches later; that was logged */
  char text[VGPU_UUID_BYTES];
  vgpu_uuid_text(uuid, text);
  bool paged = vgpu_limits_paged();
  int page = paged ? vgpu_limits_find(text) : -1;
  int entry = page >= 0 || !paged ? place_of(region, text) : -1;
  if (entry < 0 || is_taken(entry)) {
    vgpu_log(VGPU_ERROR, "%s gets no memory: %s", text,
             paged && page < 0 ? "the limits page does not name it"
             : entry < 0       ? "the region has no place for it"
                               : "its place in the region was another device's. Start the program again");
    return VGPU_DENIED;
  }
  memcpy(entries[entry].uuid, uuid, UUID);
  memcpy(entries[entry].text, text, sizeof text);
  entries[entry].source = (struct vgpu_source){.page = page};
  if (!paged) limits_from_environment(&entries[entry].source, ordinal);
  entries[entry].assumed = assumed;
  __atomic_store_n(&entries[entry].known, true, __ATOMIC_RELEASE);
  VGPU_ASSERT(is_claimed(region, entry));
  VGPU_ASSERT_EXPENSIVE(find(uuid) == entry);
  return entry;
}

/* The caller holds `registering`. */
static int find_or_register(const unsigned char uuid[UUID], unsigned ordinal, bool assumed) {
  int entry = find(uuid);
  if (entry < 0) return register_device(uuid, ordinal, assumed);
  if (assumed || !entries[entry].assumed) return entry;
  if (!vgpu_limits_paged()) limits_from_environment(&entries[entry].source, ordinal);
  __atomic_store_n(&entries[entry].assumed, false, __ATOMIC_RELEASE);
  return entry;
}

static int look_up(const unsigned char uuid[UUID], unsigned ordinal, bool assumed) {
  int entry = find(uuid);
  bool sure = entry >= 0 && !__atomic_load_n(&entries[entry].assumed, __ATOMIC_ACQUIRE);
  if (sure) return entry;
  uint32_t *registering = &vgpu_process.registering;
  vgpu_rank_take(VGPU_RANK_DEVICES);
  while (__atomic_exchange_n(registering, 1, __ATOMIC_ACQUIRE)) sched_yield();
  entry = find_or_register(uuid, ordinal, assumed);
  __atomic_store_n(registering, 0, __ATOMIC_RELEASE);
  vgpu_rank_leave(VGPU_RANK_DEVICES);
  return entry;
}

int vgpu_entry(const unsigned char uuid[UUID], unsigned ordinal) {
  return look_up(uuid, ordinal, false);
}

int vgpu_entry_assumed(const unsigned char uuid[UUID], unsigned ordinal) {
  return look_up(uuid, ordinal, true);
}

/* The shares of a region. A share counts while the slot of a holder lives, so a process that is killed at any
 * instruction leaves nothing to repair.
 *
 * Every change counts too much for a moment, and never too little. An exporter publishes the share before it
 * releases its own charge, and a sum reads the charges of processes before the shares. An importer becomes a
 * holder before the driver imports. A process ceases to be a holder after the driver has freed. A share without
 * living holders is taken for another export by an exchange of its word `what`, which no two exports share.
 * The slot of a dead holder is removed from all shares before the slot is used again. */
#include "core/shared_memory.h"

#include "core/process_state.h"
#include "core/process_slots.h"
#include "util/assert.h"
#include "util/cancellation.h"
#include "util/fork_handlers.h"
#include "vgpu.h"

enum { DEVICE_BITS = VGPU_SHARE_DEVICE_BITS, SLOT_SHIFT = DEVICE_BITS, TURN_SHIFT = SLOT_SHIFT + 8 };
enum { SIZE_SHIFT = VGPU_SHARE_SIZE_SHIFT, WORDS = VGPU_SLOTS_MAX / 64 };
#define STEP ((uint64_t)VGPU_SHARE_STEP)
#define BYTES_MAX (STEP << (63 - SIZE_SHIFT))

static struct vgpu_lock lock = VGPU_UNLOCKED(VGPU_RANK_SHARES);
static bool watched;

/* How often this process holds each share, and how often as an unidentified one. */
static uint32_t held[VGPU_SHARES_MAX];
static bool joined_unidentified[VGPU_SHARES_MAX];
static uint32_t unidentified;

static void forget(void) {
  lock = (struct vgpu_lock)VGPU_UNLOCKED(VGPU_RANK_SHARES);
  for (int i = 0; i < VGPU_SHARES_MAX; i++) held[i] = joined_unidentified[i] = 0;
  unidentified = 0;
}

static vgpu_region *region(void) { return vgpu_process.mapped.region; }
static unsigned own_slot(void) { return (unsigned)(vgpu_process.mapped.slot - region()->slot); }
static uint64_t bytes_in(uint64_t what) { return (what >> SIZE_SHIFT) * STEP; }
static int entry_in(uint64_t what) { return (int)(what & ((1 << DEVICE_BITS) - 1)); }
static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static unsigned high_now(void) {
  uint64_t high = load(&region()->shares_high);
  return high < VGPU_SHARES_MAX ? (unsigned)high : VGPU_SHARES_MAX;
}

static bool usable(void) { return vgpu_ready() && !vgpu_region_unusable() && region(); }

static void set_holder(vgpu_share *share) {
  __atomic_fetch_or(&share->holders[own_slot() / 64], 1ULL << own_slot() % 64, __ATOMIC_SEQ_CST);
}

static void clear_holder(vgpu_share *share) {
  __atomic_fetch_and(&share->holders[own_slot() / 64], ~(1ULL << own_slot() % 64), __ATOMIC_SEQ_CST);
}

static bool has_holder(const vgpu_share *share) {
  uint64_t any = 0;
  for (int i = 0; i < WORDS; i++) any |= load(&share->holders[i]);
  return any != 0;
}

/* The holders of a word that live. */
static uint64_t living_in(const vgpu_share *share, int word) {
  uint64_t living = 0;
  for (uint64_t left = load(&share->holders[word]); left; left &= left - 1) {
    int bit = __builtin_ctzll(left);
    if (vgpu_slot_lives(&region()->slot[word * 64 + bit])) living |= 1ULL << bit;
  }
  return living;
}

static bool has_living_holder(const vgpu_share *share) {
  for (int i = 0; i < WORDS; i++)
    if (living_in(share, i)) return true;
  return false;
}

uint64_t vgpu_shared_bytes(int entry, bool living) {
  uint64_t sum = 0;
  for (unsigned i = 0, high = high_now(); i < high; i++) {
    const vgpu_share *share = &region()->share[i];
    uint64_t what = load(&share->what);
    if (entry_in(what) != entry || !(living ? has_living_holder(share) : has_holder(share))) continue;
    sum += bytes_in(what);
  }
  return sum;
}

/* Take a share for new memory. This process is a holder before the share has the new size. */
static bool claim(unsigned number, int entry, uint64_t bytes, uint64_t key) {
  vgpu_share *share = &region()->share[number];
  uint64_t before = load(&share->what);
  if (held[number] || has_living_holder(share)) return false;
  uint64_t turn = ((before >> TURN_SHIFT) + 1) & 0xff;
  uint64_t after = (bytes + STEP - 1) / STEP << SIZE_SHIFT | turn << TURN_SHIFT |
                   (uint64_t)own_slot() << SLOT_SHIFT | (uint64_t)entry;
  set_holder(share);
  if (!__atomic_compare_exchange_n(&share->what, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    clear_holder(share);
    return false;
  }
  for (int i = 0; i < WORDS; i++) __atomic_fetch_and(&share->holders[i], living_in(share, i), __ATOMIC_SEQ_CST);
  __atomic_store_n(&share->key, key, __ATOMIC_SEQ_CST);
  held[number] = 1;
  return true;
}

/* Sums and new owners of slots read only the shares below `shares_high`. */
static void raise_high(uint64_t high) {
  uint64_t before = load(&region()->shares_high);
  while (before < high && !__atomic_compare_exchange_n(&region()->shares_high, &before, high, false,
                                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
}

int vgpu_share_begin(int entry, uint64_t bytes, uint64_t key) {
  if (entry < 0 || entry >= VGPU_DEVICES_MAX || !bytes || bytes > BYTES_MAX || !usable()) return -1;
  int begun = -1;
  vgpu_reset_in_children(&watched, forget);
  vgpu_lock(&lock);
  for (unsigned i = 0; i < VGPU_SHARES_MAX && begun < 0; i++) {
    raise_high(i + 1);
    if (claim(i, entry, bytes, key)) begun = (int)i;
  }
  vgpu_unlock(&lock);
  VGPU_ASSERT(begun < 0 || vgpu_shared_bytes(entry, true) >= bytes);
  if (begun < 0)
    vgpu_log(VGPU_WARNING, "%d allocations are shared already; this one is charged to this process alone",
             VGPU_SHARES_MAX);
  return begun;
}

void vgpu_share_rename(int share, uint64_t key) {
  if (share < 0 || !usable()) return;
  uint64_t *now = &region()->share[share].key;
  if (load(now) != key) __atomic_store_n(now, VGPU_UNIDENTIFIED, __ATOMIC_SEQ_CST);
}

static void hold(unsigned number) {
  if (!held[number]++) set_holder(&region()->share[number]);
}

static void drop(unsigned number) {
  vgpu_share *share = &region()->share[number];
  VGPU_ASSERT(held[number]);
  if (--held[number]) return;
  uint64_t what = load(&share->what);
  clear_holder(share);
  /* Its memory is free. Without a size it does not count while another export takes it. */
  if (!has_holder(share))
    __atomic_compare_exchange_n(&share->what, &what, what & ((1ULL << SIZE_SHIFT) - 1), false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
}

static bool is_present(const vgpu_share *share, uint64_t key) {
  return load(&share->key) == key && bytes_in(load(&share->what)) && has_living_holder(share);
}

/* The share may have ended, and belong to another export, since it was found. */
static bool try_join(unsigned number, uint64_t key) {
  const vgpu_share *share = &region()->share[number];
  uint64_t what = load(&share->what);
  if (!is_present(share, key)) return false;
  hold(number);
  if (load(&share->what) == what && load(&share->key) == key) return true;
  drop(number);
  return false;
}

int vgpu_share_join(uint64_t key) {
  if (!usable() || !high_now() || key == VGPU_UNIDENTIFIED) return -1;
  int joined = -1;
  vgpu_reset_in_children(&watched, forget);
  vgpu_lock(&lock);
  for (unsigned i = 0, high = high_now(); i < high && joined < 0; i++)
    if (try_join(i, key)) joined = (int)i;
  vgpu_unlock(&lock);
  return joined;
}

void vgpu_share_leave(int share) {
  if (share < 0 || !usable()) return;
  vgpu_lock(&lock);
  drop((unsigned)share);
  vgpu_unlock(&lock);
}

/* An import holds one of the shares that exist now, and none that begins later. */
void vgpu_unidentified_join(void) {
  if (!usable()) return;
  vgpu_reset_in_children(&watched, forget);
  vgpu_lock(&lock);
  unidentified++;
  for (unsigned i = 0, high = high_now(); i < high; i++)
    if (!joined_unidentified[i] && try_join(i, VGPU_UNIDENTIFIED)) joined_unidentified[i] = true;
  vgpu_unlock(&lock);
}

void vgpu_unidentified_leave(void) {
  if (!usable()) return;
  vgpu_lock(&lock);
  bool last = unidentified && !--unidentified;
  for (unsigned i = 0; last && i < VGPU_SHARES_MAX; i++) {
    if (joined_unidentified[i]) drop(i);
    joined_unidentified[i] = false;
  }
  vgpu_unlock(&lock);
}

/* FNV-1a. */
uint64_t vgpu_share_key(const void *content, unsigned size) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)content)[i]) * 1099511628211ULL;
  return hash > VGPU_UNIDENTIFIED ? hash : hash + 2;
}

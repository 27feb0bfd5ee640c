/* The memory limit of a device: bytes are reserved before the driver is called, and released after it has
 * freed them.
 *
 * A process publishes the requested bytes in its own slot, then sums all slots, and retracts the bytes
 * if the sum exceeds the limit. Of any reservations that are granted at the same time, one was
 * published last, in the single order of all sequentially consistent accesses. Its sum came after that
 * and included all of them. So together they are within the limit. There is no lock, and nothing to
 * repair after a kill: published bytes count while their process lives. */
#include <sched.h>

#include "core/near_limit_gate.h"
#include "core/device_entries.h"
#include "core/process_state.h"
#include "core/process_slots.h"
#include "core/shared_memory.h"
#include "util/arithmetic.h"
#include "util/assert.h"
#include "vgpu.h"

enum { TRIES = 4 };

/* More than any device has, and so little that the sum of all slots cannot overflow. */
#define SLOT_BYTES_MAX (1ULL << 55)

/* One reservation. */
struct request {
  const struct vgpu_source *source;
  uint64_t *own;
  int entry;
  uint64_t bytes;
};

static vgpu_region *region(void) { return vgpu_process.mapped.region; }

/* The source of an entry's limits, in a ready process. NULL: refuse all memory. */
static inline const struct vgpu_source *limits_source(int entry) {
  if (entry >= VGPU_DEVICES_MAX || vgpu_region_unusable()) return NULL;
  return vgpu_source_of(entry);
}

static inline uint64_t *own_of(int entry) {
  const struct vgpu_mapped *mapped = &vgpu_process.mapped;
  VGPU_ASSERT(entry >= 0 && entry < VGPU_DEVICES_MAX);
  if (vgpu_region_unusable()) return &vgpu_process.unslotted_bytes[entry];
  return &mapped->region->used[entry].slot[mapped->slot - mapped->region->slot];
}

/* Shares are read after all slots, because a share is published before its exporter's slot falls. */
static inline uint64_t with_shares(uint64_t total, int entry, bool living) {
  if (__builtin_expect(!__atomic_load_n(&region()->shares_high, __ATOMIC_SEQ_CST), 1)) return total;
  return vgpu_sum(total, vgpu_shared_bytes(entry, living));
}

/* The sum of a device's slots. A slot of SLOT_BYTES_MAX or more is corrupt: the sum is UINT64_MAX. */
static uint64_t sum_of_all(int entry) {
  uint64_t total = 0, any = 0;
  const uint64_t *uses = region()->used[entry].slot;
  unsigned high = vgpu_slots_high(region());
#pragma GCC unroll 8
  for (unsigned i = 0; i < high; i++) {
    uint64_t used = __atomic_load_n(&uses[i], __ATOMIC_SEQ_CST);
    total += used;
    any |= used;
  }
  return any < SLOT_BYTES_MAX ? with_shares(total, entry, false) : UINT64_MAX;
}

/* Whether no process has published bytes in a slot that sums do not read. */
static bool is_clear_above_high(int entry) {
  const uint64_t *uses = region()->used[entry].slot;
  unsigned last = 0;
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++)
    if (__atomic_load_n(&uses[i], __ATOMIC_SEQ_CST)) last = i + 1;
  return last <= vgpu_slots_high(region());
}

/* The same without dead processes, which takes a second read of each slot. */
static uint64_t sum_of_living(int entry) {
  uint64_t total = 0;
  const uint64_t *uses = region()->used[entry].slot;
  unsigned high = vgpu_slots_high(region());
  for (unsigned i = 0; i < high; i++) {
    uint64_t used = __atomic_load_n(&uses[i], __ATOMIC_SEQ_CST);
    if (used && vgpu_slot_lives(&region()->slot[i])) total = vgpu_sum(total, used);
  }
  return with_shares(total, entry, true);
}

static void publish(uint64_t *own, uint64_t bytes) {
  uint64_t before = __atomic_fetch_add(own, bytes, __ATOMIC_SEQ_CST);
  VGPU_ASSERT(before + bytes >= before);
}

/* Retract bytes, not below zero: an excess release must not wrap around to huge usage. */
static bool retract(uint64_t *own, uint64_t bytes) {
  uint64_t before = __atomic_load_n(own, __ATOMIC_RELAXED), after;
  do after = before > bytes ? before - bytes : 0;
  while (
      !__atomic_compare_exchange_n(own, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return before >= bytes;
}

/* The last sum that this process computed for each device: an estimate that saves a sum. */
static uint64_t last_sum[VGPU_DEVICES_MAX];

typedef uint64_t summing(int entry);

/* Try once. `expected` estimates the usage of all processes. A request that would not fit sums first,
 * and publishes only if it fits after all, so that it does not hinder others. */
static inline bool try_reserve(const struct request *request, summing *sum, uint64_t expected) {
  uint64_t limit = vgpu_limits_memory(request->source);
  uint64_t overhead_bytes = vgpu_limits_overhead(request->source);
  uint64_t room = limit > overhead_bytes ? limit - overhead_bytes : 0;
  if (request->bytes > room) return false;
  uint64_t most = room - request->bytes;
  if (expected > most && sum(request->entry) > most) return false;
  publish(request->own, request->bytes);
  uint64_t all = sum(request->entry);
  VGPU_ASSERT(all >= request->bytes || vgpu_region_unusable()); /* the sum includes its own slot */
  VGPU_ASSERT_EXPENSIVE(is_clear_above_high(request->entry));
  __atomic_store_n(&last_sum[request->entry], all, __ATOMIC_RELAXED);
  if (all <= room) return true;
  retract(request->own, request->bytes);
  return false;
}

/* Near the limit two simultaneous requests may each make the other fail. So they pass the gate one after
 * the other, and try more than once, because another request may not have reached the gate yet. A
 * refused process retracts first, so of any set of contenders at least one succeeds if one fits. */
static bool reserve_contended(const struct request *request) {
  uint64_t taken = vgpu_gate_take(&region()->gate);
  bool granted = false;
  for (int i = 0; i < TRIES && !(granted = try_reserve(request, sum_of_living, UINT64_MAX)); i++)
    sched_yield();
  if (taken) vgpu_gate_leave(&region()->gate, taken);
  return granted;
}

bool vgpu_reserve(int entry, uint64_t bytes) {
  if (entry < 0 || !bytes || !vgpu_ready()) return true;
  const struct vgpu_source *source = limits_source(entry);
  uint64_t limit = source ? vgpu_limits_memory(source) : 0;
  if (bytes > limit || bytes > SLOT_BYTES_MAX) return false;
  struct request request = {source, own_of(entry), entry, bytes};
  if (limit == VGPU_NO_LIMIT) {
    publish(request.own, bytes);
    return true;
  }
  uint64_t expected = __atomic_load_n(&last_sum[entry], __ATOMIC_RELAXED);
  return try_reserve(&request, sum_of_all, expected) || reserve_contended(&request);
}

static uint64_t *own_count(int entry) {
  return entry < 0 || entry >= VGPU_DEVICES_MAX || !vgpu_ready() ? NULL : own_of(entry);
}

void vgpu_release(int entry, uint64_t bytes) {
  uint64_t *own = own_count(entry);
  if (!own || retract(own, bytes)) return;
  vgpu_log(VGPU_WARNING, "more of device %d was given back than was reserved", entry);
  VGPU_ASSERT(vgpu_region_unusable());
}

void vgpu_reserve_forced(int entry, uint64_t bytes) {
  uint64_t *own = own_count(entry);
  if (own) publish(own, bytes < SLOT_BYTES_MAX ? bytes : SLOT_BYTES_MAX);
}

uint64_t vgpu_reserved_here(int entry) {
  uint64_t *own = own_count(entry);
  return own ? __atomic_load_n(own, __ATOMIC_RELAXED) : 0;
}

uint64_t vgpu_used(int entry) {
  uint64_t *own = own_count(entry);
  if (!own) return 0;
  const struct vgpu_source *source = vgpu_source_of(entry);
  uint64_t total = region() ? sum_of_living(entry) : 0;
  if (vgpu_region_unusable()) total = vgpu_sum(total, __atomic_load_n(own, __ATOMIC_RELAXED));
  return source ? vgpu_sum(total, vgpu_limits_overhead(source)) : total;
}

uint64_t vgpu_limit(int entry) {
  if (entry < 0 || !vgpu_ready()) return VGPU_NO_LIMIT;
  const struct vgpu_source *source = limits_source(entry);
  return source ? vgpu_limits_memory(source) : 0;
}

unsigned vgpu_cores(int entry) {
  const struct vgpu_source *source =
      entry < 0 || entry >= VGPU_DEVICES_MAX || !vgpu_ready() ? NULL : vgpu_source_of(entry);
  return source ? vgpu_limits_cores(source) : 100;
}

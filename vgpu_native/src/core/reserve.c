/* The ledger: reserve before the driver is asked, release after it has freed.
 *
 * A process publishes what it wants in its own slot, then adds up all slots, and takes it back if
 * the sum is over the limit. Of any reservations that were granted together, one was published
 * last, in the one order of all sequentially consistent accesses; its sum came later still and had
 * all of them in it; so together they are within the limit. There is no lock, and nothing to repair
 * after a kill: what a process published counts while it lives, and no longer. */
#include <sched.h>

#include "core/contention_gate.h"
#include "core/devices.h"
#include "core/process.h"
#include "core/slots.h"
#include "util/arithmetic.h"
#include "util/assert.h"
#include "vgpu.h"

enum { TRIES = 4 };

/* More than any device has, and so little that the sum of all slots cannot go round. */
#define SLOT_BYTES_MAX (1ULL << 55)

/* What one reservation is about. */
struct request {
  const struct vgpu_source *source;
  uint64_t *own;
  int entry;
  uint64_t bytes;
};

static vgpu_region *region(void) { return vgpu_process.mapped.region; }

/* Whether what this process uses can be said nowhere. So it is too when it shares its memory with one
 * that has ended, whose thread owned the slot (clone with CLONE_VM): that may be another's by now. */
static inline bool region_unusable(void) {
  const struct vgpu_process *process = &vgpu_process;
  return process->deny_memory ||
         __atomic_load_n(&process->mapped.slot->owner, __ATOMIC_RELAXED) != process->owner;
}

/* What limits an entry, of a process that is ready; NULL: no memory may be given. */
static inline const struct vgpu_source *limits_source(int entry) {
  if (entry >= VGPU_DEVICES_MAX || region_unusable()) return NULL;
  return vgpu_source_of(entry);
}

static inline uint64_t *own_of(int entry) {
  const struct vgpu_mapped *mapped = &vgpu_process.mapped;
  VGPU_ASSERT(entry >= 0 && entry < VGPU_DEVICES_MAX);
  if (region_unusable()) return &vgpu_process.unslotted_bytes[entry];
  return &mapped->region->used[entry].slot[mapped->slot - mapped->region->slot];
}

/* What the slots say that a device is used. A slot with more than that lies, or many would not fit.
 */
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
  return any < SLOT_BYTES_MAX ? total : UINT64_MAX;
}

/* Whether no process has published anything in a slot that sums do not look at. */
static bool is_clear_above_high(int entry) {
  const uint64_t *uses = region()->used[entry].slot;
  unsigned last = 0;
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++)
    if (__atomic_load_n(&uses[i], __ATOMIC_SEQ_CST)) last = i + 1;
  return last <= vgpu_slots_high(region());
}

/* The same without the dead, which needs a second look at each slot. */
static uint64_t sum_of_living(int entry) {
  uint64_t total = 0;
  const uint64_t *uses = region()->used[entry].slot;
  unsigned high = vgpu_slots_high(region());
  for (unsigned i = 0; i < high; i++) {
    uint64_t used = __atomic_load_n(&uses[i], __ATOMIC_SEQ_CST);
    if (used && vgpu_slot_lives(&region()->slot[i])) total = vgpu_sum(total, used);
  }
  return total;
}

static void publish(uint64_t *own, uint64_t bytes) {
  uint64_t before = __atomic_fetch_add(own, bytes, __ATOMIC_SEQ_CST);
  VGPU_ASSERT(before + bytes >= before);
}

/* Never below zero: a release too many must not look like memory that is used for ever. */
static bool retract(uint64_t *own, uint64_t bytes) {
  uint64_t before = __atomic_load_n(own, __ATOMIC_RELAXED), after;
  do after = before > bytes ? before - bytes : 0;
  while (
      !__atomic_compare_exchange_n(own, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return before >= bytes;
}

/* The last sum that this process saw of each device: a hint, which saves a look at all slots. */
static uint64_t last_sum[VGPU_DEVICES_MAX];

typedef uint64_t summing(int entry);

/* Ask once, with what others are expected to use: who would not fit looks first whether that is
 * still so, and if it is does not publish, to be in nobody's way. */
static inline bool try_reserve(const struct request *request, summing *sum, uint64_t expected) {
  uint64_t limit = vgpu_limits_memory(request->source);
  uint64_t overhead_bytes = vgpu_limits_overhead(request->source);
  uint64_t room = limit > overhead_bytes ? limit - overhead_bytes : 0;
  if (request->bytes > room) return false;
  uint64_t most = room - request->bytes;
  if (expected > most && sum(request->entry) > most) return false;
  publish(request->own, request->bytes);
  uint64_t all = sum(request->entry);
  VGPU_ASSERT(all >= request->bytes || region_unusable()); /* the sum includes its own slot */
  VGPU_ASSERT_EXPENSIVE(is_clear_above_high(request->entry));
  __atomic_store_n(&last_sum[request->entry], all, __ATOMIC_RELAXED);
  if (all <= room) return true;
  retract(request->own, request->bytes);
  return false;
}

/* Near the limit: of two who ask at once each may stand in the other's way, so one after the other,
 * and more than once, as somebody may ask who has not come to the gate yet. He will: who is refused
 * here because of him makes room for him, so that never all are refused while there is room for
 * one. */
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
  VGPU_ASSERT(region_unusable());
}

void vgpu_reserve_forced(int entry, uint64_t bytes) {
  uint64_t *own = own_count(entry);
  if (own) publish(own, bytes < SLOT_BYTES_MAX ? bytes : SLOT_BYTES_MAX);
}

uint64_t vgpu_used(int entry) {
  uint64_t *own = own_count(entry);
  if (!own) return 0;
  const struct vgpu_source *source = vgpu_source_of(entry);
  uint64_t total = region() ? sum_of_living(entry) : 0;
  if (region_unusable()) total = vgpu_sum(total, __atomic_load_n(own, __ATOMIC_RELAXED));
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

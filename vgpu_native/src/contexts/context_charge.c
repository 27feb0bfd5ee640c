/* The size of a context is measured when it is created, by the memory that NVML reports for this process. The
 * memory of the whole card is not a measure, because other containers start or allocate at the same time. Without a figure of its
 * own, a context is not charged: the agent adds it, some seconds late. */
#include "contexts/context_charge.h"

#include "contexts/own_growth.h"
#include "core/limits/limits_page.h"
#include "intercept/device_lookup.h"
#include "memory/charges/allocation_charge.h"
#include "util/assert.h"
#include "util/fork_handlers.h"

enum { DEVICES = 64 };

/* By context: its bytes; the note is the entry plus one. */
static struct vgpu_map contexts;

/* The last measured context and green context of each device, 0 before the first; and promised memory of limits. */
static uint64_t sizes[2][VGPU_DEVICES_MAX];
static uint64_t promised[VGPU_DEVICES_MAX];

bool vgpu_contexts_charged(int entry) {
  return entry >= 0 && entry < VGPU_DEVICES_MAX && vgpu_limit(entry) != VGPU_NO_LIMIT &&
         !vgpu_limits_contexts_exempt();
}

/* The lists around a creation, and the devices of which this process had a context; under the lock of contexts. */
static struct vgpu_processes before, after;
static bool had_context[DEVICES];
static bool watched;

static void forget(void) {
  for (int i = 0; i < DEVICES; i++) had_context[i] = false;
}

static bool is_first(CUdevice device) {
  unsigned flags;
  int active = 0;
  if (device < 0 || device >= DEVICES || had_context[device]) return false;
  return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && !active;
}

bool vgpu_creation_begin(struct vgpu_creation *creation, CUdevice device, bool green) {
  *creation = (struct vgpu_creation){.entry = vgpu_device_entry(device), .device = device, .green = green};
  struct vgpu_charge charge;
  vgpu_reset_in_children(&watched, forget);
  if (!vgpu_contexts_charged(creation->entry)) creation->entry = -1;
  if (creation->entry < 0) return true;
  uint64_t size = sizes[green][creation->entry];
  if (size && !vgpu_charge_device(&charge, creation->entry, size)) return false;
  creation->reserved = size;
  creation->first = is_first(device);
  creation->claimed = vgpu_growth_claim(creation->entry);
  creation->charged = vgpu_reserved_here(creation->entry);
  if (creation->claimed && !vgpu_processes_read(device, &before)) {
    vgpu_growth_leave(creation->entry);
    creation->claimed = false;
  }
  return true;
}

/* The size of a created context, which is the current one. */
static uint64_t size_of(const struct vgpu_creation *creation) {
  uint64_t known = sizes[creation->green][creation->entry];
  if (!creation->claimed || !vgpu_processes_read(creation->device, &after)) return known;
  uint64_t charged = vgpu_reserved_here(creation->entry);
  vgpu_own_pid_find(creation->device, creation->entry, creation->first, &before, &after);
  unsigned pid = vgpu_own_pid();
  if (!pid) return creation->first ? vgpu_least_new(&before, &after) : known;
  uint64_t own = vgpu_processes_bytes(&after, pid), then = vgpu_processes_bytes(&before, pid);
  int64_t grown = (int64_t)(own - then) - (int64_t)(charged - creation->charged);
  if (!own || (!then && vgpu_processes_have(&before, pid))) return known;
  return grown > 0 ? (uint64_t)grown : 0;
}

static bool fit(const struct vgpu_creation *creation, uint64_t size) {
  struct vgpu_charge charge;
  if (size < creation->reserved) vgpu_release(creation->entry, creation->reserved - size);
  if (size <= creation->reserved) return true;
  if (vgpu_charge_device(&charge, creation->entry, size - creation->reserved)) return true;
  vgpu_release(creation->entry, creation->reserved);
  return false;
}

static uint64_t measured_in(const struct vgpu_creation *creation, CUcontext context) {
  CUcontext popped;
  if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return sizes[creation->green][creation->entry];
  uint64_t size = size_of(creation);
  REAL(cuCtxPopCurrent_v2)(&popped);
  return size;
}

bool vgpu_creation_end(struct vgpu_creation *creation, CUresult result, CUcontext context) {
  CUdevice device = creation->device;
  if (result == CUDA_SUCCESS && device >= 0 && device < DEVICES) had_context[device] = true;
  if (creation->entry < 0) return true;
  uint64_t size = result == CUDA_SUCCESS ? measured_in(creation, context) : 0;
  if (creation->claimed) vgpu_growth_leave(creation->entry);
  if (!fit(creation, size)) return false;
  if (result != CUDA_SUCCESS) return true;
  if (size) sizes[creation->green][creation->entry] = size;
  vgpu_context_add(context, creation->entry, (int64_t)size);
  return true;
}

void vgpu_context_add(CUcontext context, int entry, int64_t bytes) {
  struct vgpu_item item = {(uintptr_t)context, 0, (uint64_t)entry + 1}, old;
  if (vgpu_map_take(&contexts, (uintptr_t)context, &old)) item.bytes = old.bytes;
  VGPU_ASSERT(bytes >= 0 || item.bytes >= (uint64_t)-bytes);
  item.bytes += (uint64_t)bytes;
  if (!vgpu_map_put(&contexts, item, &old)) vgpu_release(entry, item.bytes);
}

bool vgpu_context_has(CUcontext context, uint64_t bytes) {
  struct vgpu_item item;
  return vgpu_map_find(&contexts, (uintptr_t)context, &item) && item.bytes >= bytes;
}

void vgpu_context_uncharge(CUcontext context) {
  struct vgpu_item item;
  if (!context || !vgpu_map_take(&contexts, (uintptr_t)context, &item)) return;
  int entry = (int)item.note - 1;
  vgpu_release(entry, item.bytes);
  __atomic_store_n(&promised[entry], 0, __ATOMIC_RELAXED);
}

void vgpu_promise(int entry, uint64_t bytes) { __atomic_fetch_add(&promised[entry], bytes, __ATOMIC_RELAXED); }

uint64_t vgpu_beyond_promise(int entry, uint64_t grown) {
  uint64_t part, before = __atomic_load_n(&promised[entry], __ATOMIC_RELAXED);
  do part = before < grown ? before : grown;
  while (!__atomic_compare_exchange_n(&promised[entry], &before, before - part, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return grown - part;
}

/* The size of a context is measured when it is created. Without a context, only NVML reports memory: that of this
 * process if it lists the process, else that of the whole card, to which other containers contribute. So a
 * measurement above CONTEXT_MAX is dropped, and of several in a process the smallest counts. The agent adds
 * what is measured too low or cannot be measured. */
#include "contexts/context_charge.h"

#include <dlfcn.h>
#include <errno.h>
#include <nvml.h>
#include <stdio.h>
#include <unistd.h>

#include "core/limits/limits_page.h"
#include "intercept/device_lookup.h"
#include "memory/charges/allocation_charge.h"
#include "util/assert.h"

#define CONTEXT_MAX (2ULL << 30)
enum { PROCESSES_MAX = 256 };

/* By context: its bytes; the note is the entry plus one. */
static struct vgpu_map contexts;

/* The smallest measured context and green context of each device, 0 before the first; and promised memory of
 * limits. */
static uint64_t sizes[2][VGPU_DEVICES_MAX];
static uint64_t promised[VGPU_DEVICES_MAX];

bool vgpu_contexts_charged(int entry) {
  return entry >= 0 && entry < VGPU_DEVICES_MAX && vgpu_limit(entry) != VGPU_NO_LIMIT &&
         !vgpu_limits_contexts_exempt();
}

/* NVML's handle of a device. NVML is loaded and initialised once, and only if contexts are charged. */
static bool nvml_device(CUdevice device, nvmlDevice_t *handle) {
  static int ready;
  CUuuid uuid;
  char text[64];
  int error = errno;
  if (!ready && dlopen("libnvidia-ml.so.1", RTLD_LAZY)) ready = REAL(nvmlInit_v2)() == NVML_SUCCESS ? 1 : -1;
  errno = error;
  CUresult result = HAS(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, device) : CUDA_ERROR_NOT_SUPPORTED;
  if (ready != 1 || result != CUDA_SUCCESS) return false;
  const unsigned char *b = (const unsigned char *)uuid.bytes;
  snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
           b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return REAL(nvmlDeviceGetHandleByUUID)(text, handle) == NVML_SUCCESS;
}

/* The bytes of this process. False: NVML does not list it, as in a container with pids of its own. */
static bool own_bytes(nvmlDevice_t device, uint64_t *used) {
  static nvmlProcessInfo_t processes[PROCESSES_MAX]; /* under the lock of contexts */
  unsigned count = PROCESSES_MAX;
  if (REAL(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, processes) != NVML_SUCCESS) return false;
  for (unsigned i = 0; i < count; i++) {
    if (processes[i].pid != (unsigned)getpid() || processes[i].usedGpuMemory == ~0ULL) continue;
    *used = processes[i].usedGpuMemory;
    return true;
  }
  return false;
}

bool vgpu_used_now(uint64_t *used) {
  size_t free = 0, total = 0;
  bool done = REAL(cuMemGetInfo_v2)(&free, &total) == CUDA_SUCCESS && free <= total;
  *used = total - free;
  return done;
}

static struct vgpu_reading read_device(CUdevice device) {
  struct vgpu_reading reading = {0};
  nvmlDevice_t handle;
  nvmlMemory_t memory;
  CUdevice current = -1;
  if (nvml_device(device, &handle)) {
    reading.own_known = own_bytes(handle, &reading.own);
    reading.card_known = REAL(nvmlDeviceGetMemoryInfo)(handle, &memory) == NVML_SUCCESS;
    if (reading.card_known) reading.card = memory.used;
  } else if (REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS && current == device) {
    reading.card_known = vgpu_used_now(&reading.card);
  }
  return reading;
}

bool vgpu_creation_begin(struct vgpu_creation *creation, CUdevice device, bool green) {
  *creation = (struct vgpu_creation){.entry = vgpu_device_entry(device), .green = green};
  struct vgpu_charge charge;
  if (!vgpu_contexts_charged(creation->entry)) creation->entry = -1;
  if (creation->entry < 0) return true;
  uint64_t size = sizes[green][creation->entry];
  if (size && !vgpu_charge_device(&charge, creation->entry, size)) return false;
  creation->reserved = size;
  creation->before = read_device(device);
  return true;
}

/* What was taken between two readings. A process without memory is not listed. 0: unknown. */
static uint64_t growth(const struct vgpu_reading *before, const struct vgpu_reading *after) {
  if (after->own_known) return after->own > before->own ? after->own - before->own : 0;
  if (!before->card_known || !after->card_known) return 0;
  return after->card > before->card ? after->card - before->card : 0;
}

/* The size of a created context: the measured one if it is plausible, else the known one. */
static uint64_t size_of(const struct vgpu_creation *creation, CUdevice device) {
  uint64_t known = sizes[creation->green][creation->entry];
  struct vgpu_reading after = read_device(device);
  uint64_t grown = growth(&creation->before, &after);
  if (!grown || grown > CONTEXT_MAX) return known;
  return known && known < grown ? known : grown;
}

static bool fit(const struct vgpu_creation *creation, uint64_t size) {
  struct vgpu_charge charge;
  if (size < creation->reserved) vgpu_release(creation->entry, creation->reserved - size);
  if (size <= creation->reserved) return true;
  if (vgpu_charge_device(&charge, creation->entry, size - creation->reserved)) return true;
  vgpu_release(creation->entry, creation->reserved);
  return false;
}

bool vgpu_creation_end(struct vgpu_creation *creation, CUresult result, CUcontext context) {
  CUdevice device = -1;
  if (creation->entry < 0) return true;
  if (result != CUDA_SUCCESS) return vgpu_release(creation->entry, creation->reserved), true;
  CUcontext popped;
  if (REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
    REAL(cuCtxGetDevice)(&device);
    REAL(cuCtxPopCurrent_v2)(&popped);
  }
  uint64_t size = size_of(creation, device);
  if (!fit(creation, size)) return false;
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

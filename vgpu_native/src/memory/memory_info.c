/* The total and free memory that CUDA and NVML return: reduced to the container's share, and the same from
 * both. The rest of NVML is unchanged. */
#include <nvml.h>
#include <string.h>

#include "driver.h"
#include "intercept/device_lookup.h"
#include "intercept/nested_calls.h"
#include "memory/charges/doubtful_charges.h"
#include "memory/graph_memory.h"
#include "memory/charges/memory_pools.h"

struct memory_view {
  uint64_t free, total;
};

/* The container's view of the driver's numbers. Entry -1 has no limit. */
static struct memory_view view_of(int entry, uint64_t free, uint64_t total) {
  struct memory_view view = {free, total};
  uint64_t limit = entry < 0 ? VGPU_NO_LIMIT : vgpu_limit(entry);
  if (limit == VGPU_NO_LIMIT) return view;
  uint64_t used = vgpu_used(entry), left = used < limit ? limit - used : 0;
  /* With oversubscription neither the card's size nor the usage of others limits the container. */
  if (vgpu_oversubscribes()) return (struct memory_view){left, limit};
  if (limit < total) view.total = limit;
  if (left < free) view.free = left;
  return view;
}

/* Numbers of the first version of the driver have 32 bits. */
static unsigned saturate_32(uint64_t bytes) { return bytes > 0xffffffffULL ? 0xffffffffU : (unsigned)bytes; }

static CUresult read_view(struct memory_view *view) {
  size_t free = 0, total = 0;
  CUresult result = REAL(cuMemGetInfo_v2)(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  int entry = vgpu_current_entry();
  vgpu_doubts_recheck(entry);
  vgpu_pools_update_charges();
  vgpu_graphs_update_charges();
  *view = view_of(entry, free, total);
  return result;
}

EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total) {
  if (!vgpu_enter()) return REAL(cuMemGetInfo_v2)(free, total);
  struct memory_view view;
  CUresult result = read_view(&view);
  if (result == CUDA_SUCCESS && free) *free = view.free;
  if (result == CUDA_SUCCESS && total) *total = view.total;
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemGetInfo(unsigned int *free, unsigned int *total) {
  if (!vgpu_enter()) return REAL(cuMemGetInfo)(free, total);
  struct memory_view view;
  CUresult result = read_view(&view);
  if (result == CUDA_SUCCESS && free) *free = saturate_32(view.free);
  if (result == CUDA_SUCCESS && total) *total = saturate_32(view.total);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, dev);
  if (result != CUDA_SUCCESS || !vgpu_enter()) return result;
  *bytes = view_of(vgpu_device_entry(dev), 0, *bytes).total;
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
  CUresult result = REAL(cuDeviceTotalMem)(bytes, dev);
  size_t total;
  if (result != CUDA_SUCCESS || !vgpu_enter()) return result;
  if (REAL(cuDeviceTotalMem_v2)(&total, dev) == CUDA_SUCCESS) {
    *bytes = saturate_32(view_of(vgpu_device_entry(dev), 0, total).total);
  }
  vgpu_leave();
  return result;
}

/* Parse the 16 bytes of `GPU-00000000-0000-0000-0000-000000000000`. False: the text is not a uuid. */
static bool parse_uuid(const char *text, unsigned char uuid[16]) {
  unsigned digits = 0;
  const char *at = strchr(text, '-');
  for (at = at ? at + 1 : ""; *at && digits < 32; at++) {
    const char *hex = "0123456789abcdef", *digit = strchr(hex, *at | 0x20);
    if (*at == '-') continue;
    if (!digit) return false;
    unsigned char value = (unsigned char)(digit - hex);
    uuid[digits / 2] = digits % 2 ? (unsigned char)(uuid[digits / 2] | value) : (unsigned char)(value << 4);
    digits++;
  }
  return digits == 32;
}

/* CUDA's ordinal of a device; -1: CUDA has not started, or does not see it. */
static CUdevice ordinal_of(const unsigned char uuid[16]) {
  int count = 0;
  CUuuid other;
  if (!HAS(cuDeviceGetUuid_v2) || REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS) return -1;
  for (CUdevice i = 0; i < count; i++) {
    if (REAL(cuDeviceGetUuid_v2)(&other, i) == CUDA_SUCCESS && !memcmp(other.bytes, uuid, 16)) return i;
  }
  return -1;
}

/* NVML's index replaces CUDA's ordinal only while that is unknown, because CUDA may number devices
 * in another order, and omits those that CUDA_VISIBLE_DEVICES leaves out. */
static int entry_of(nvmlDevice_t device) {
  char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
  unsigned char uuid[16];
  unsigned index = 0;
  if (REAL(nvmlDeviceGetUUID)(device, text, sizeof text) != NVML_SUCCESS) return -1;
  if (!parse_uuid(text, uuid)) return -1;
  CUdevice ordinal = ordinal_of(uuid);
  if (ordinal >= 0) return vgpu_entry(uuid, (unsigned)ordinal);
  REAL(nvmlDeviceGetIndex)(device, &index);
  return vgpu_entry_assumed(uuid, index);
}

EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
  if (result != NVML_SUCCESS || !vgpu_enter()) return result;
  struct memory_view view = view_of(entry_of(device), memory->free, memory->total);
  if (view.total != memory->total || view.free != memory->free) {
    *memory = (nvmlMemory_t){view.total, view.free, view.total - view.free};
  }
  vgpu_leave();
  return result;
}

/* Memory that the driver reserves for its own use is not part of the container's numbers. */
EXPORT nvmlReturn_t DECLDIR nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
  if (result != NVML_SUCCESS || !vgpu_enter()) return result;
  struct memory_view view = view_of(entry_of(device), memory->free, memory->total);
  if (view.total != memory->total || view.free != memory->free) {
    *memory = (nvmlMemory_v2_t){memory->version, view.total, 0, view.free, view.total - view.free};
  }
  vgpu_leave();
  return result;
}

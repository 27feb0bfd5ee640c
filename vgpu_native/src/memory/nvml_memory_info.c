/* NVML's memory information of a device: the same as CUDA's. The rest of NVML is unchanged. */

#include <nvml.h>
#include <string.h>

#include "intercept/hook.h"
#include "memory/memory_info.h"

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
  struct vgpu_memory_view view = vgpu_memory_view(entry_of(device), memory->free, memory->total);
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
  struct vgpu_memory_view view = vgpu_memory_view(entry_of(device), memory->free, memory->total);
  if (view.total != memory->total || view.free != memory->free) {
    *memory = (nvmlMemory_v2_t){memory->version, view.total, 0, view.free, view.total - view.free};
  }
  vgpu_leave();
  return result;
}

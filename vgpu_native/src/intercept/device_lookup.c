/* The entries of devices, by uuid: one ordinal means different devices in different processes. */
#include "intercept/device_lookup.h"

#include "driver.h"
#include "vgpu.h"

/* The known entries by ordinal, plus one. An ordinal means one device while the process lives, and an
 * entry outlives a fork. */
enum { ORDINALS = 64 };
static unsigned char known[ORDINALS];

/* A device without a readable uuid is denied, so that it has no unlimited memory. For a device that does
 * not exist the driver returns the error. */
static int read_entry(CUdevice device) {
  CUuuid uuid;
  CUresult result = HAS(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, device)
                                            : REAL(cuDeviceGetUuid)(&uuid, device);
  if (result != CUDA_SUCCESS) return result == CUDA_ERROR_NOT_SUPPORTED ? VGPU_DENIED : -1;
  return vgpu_ready() ? vgpu_entry((const unsigned char *)uuid.bytes, (unsigned)device) : -1;
}

int vgpu_device_entry(CUdevice device) {
  if (device < 0 || device >= ORDINALS) return read_entry(device);
  int entry = __atomic_load_n(&known[device], __ATOMIC_RELAXED) - 1;
  if (entry >= 0) return entry;
  entry = read_entry(device);
  if (entry >= 0 && entry < VGPU_DEVICES_MAX)
    __atomic_store_n(&known[device], (unsigned char)(entry + 1), __ATOMIC_RELAXED);
  return entry;
}

int vgpu_current_entry(void) {
  CUdevice device;
  return REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? vgpu_device_entry(device) : -1;
}

bool vgpu_has_one_device(void) {
  static int count;
  int now = __atomic_load_n(&count, __ATOMIC_RELAXED);
  if (!now && REAL(cuDeviceGetCount)(&now) == CUDA_SUCCESS) __atomic_store_n(&count, now, __ATOMIC_RELAXED);
  return now == 1;
}

/* The entries of devices, by uuid: ordinals mean other devices in other processes. */
#include "driver.h"
#include "layout.h"

int vgpu_entry_of(CUdevice device) {
  CUuuid uuid;
  if (device < 0) return -1;
  CUresult result = HAS(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, device)
                                            : REAL(cuDeviceGetUuid)(&uuid, device);
  if (result != CUDA_SUCCESS) return -1;
  return vgpu_entry((const unsigned char *)uuid.bytes, (unsigned)device);
}

int vgpu_entry_now(void) {
  CUdevice device;
  return REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS ? vgpu_entry_of(device) : -1;
}

/* The cards and their attributes: all are alike, with the size of a large card. */
#include "cuda_stub.h"

#include <stdio.h>
#include <string.h>

bool stub_is_device(CUdevice device)
{
  return stub_visible(device);
}

CUresult stub_cuDeviceGet(CUdevice *device, int ordinal)
{
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  int number = ordinal < 0 ? -1 : stub_number_of(ordinal);
  if (number < 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = number;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetCount(int *count)
{
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = stub_visible_devices();
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetName(char *name, int length, CUdevice device)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)length, "Stub GPU");
  return CUDA_SUCCESS;
}

/* GPU-00000000-0000-0000-0000-00000000000<i>, i in hexadecimal. */
static CUresult uuid_of(CUuuid *uuid, CUdevice device)
{
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  memset(uuid->bytes, 0, sizeof uuid->bytes);
  uuid->bytes[15] = (char)device;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
  return uuid_of(uuid, device);
}

CUresult stub_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
  return uuid_of(uuid, device);
}

CUresult stub_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = stub_state()->device[device].size;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!text || length < 13) return CUDA_ERROR_INVALID_VALUE;
  snprintf(text, (size_t)length, "0000:%02X:00.0", device + 1);
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
  unsigned domain, bus;
  if (!device || !text || sscanf(text, "%x:%x:", &domain, &bus) != 2) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device((int)bus - 1)) return CUDA_ERROR_INVALID_DEVICE;
  *device = (int)bus - 1;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device) || !stub_is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(from) || !stub_is_device(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  return CUDA_SUCCESS;
}

/* Attributes that programs depend on; all others are 0, which means "no" for most. */
static const struct { CUdevice_attribute which; int value; } attributes[] = {
  {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
  {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
  {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
  {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
  {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
  {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
  {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
  {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
  {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
  {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
  {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
  {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
  {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
  {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
  {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
  {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
  {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
  {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
  {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
  {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
  {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
  {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
  {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
  {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
  {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
};

CUresult stub_cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
  if (!value || which <= 0 || which >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? device + 1 : 0;
  for (unsigned i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i].which == which) *value = attributes[i].value;
  return CUDA_SUCCESS;
}

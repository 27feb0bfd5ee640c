/* The cards in NVML: their number, names and memory. */
#include "nvml_stub.h"

#include <stdio.h>
#include <string.h>

#define RESERVED 0ull

/* A handle points into this array; its index is the device. */
static char handles[STUB_DEVICES];

int stub_nvml_number(nvmlDevice_t device)
{
  char *at = (char *)device;
  if (!at || at < handles || at >= handles + stub_state()->devices) return -1;
  return (int)(at - handles);
}

nvmlDevice_t stub_nvml_handle(int device)
{
  return (nvmlDevice_t)&handles[device];
}

nvmlReturn_t stub_nvmlDeviceGetCount_v2(unsigned *count)
{
  *count = (unsigned)stub_visible_devices();
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetCount(unsigned *count) { return stub_nvmlDeviceGetCount_v2(count); }

nvmlReturn_t stub_nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
  if (index >= (unsigned)stub_visible_devices() || !device) return NVML_ERROR_INVALID_ARGUMENT;
  *device = stub_nvml_handle(stub_number_of((int)index));
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
  return stub_nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void name_of(char *text, size_t length, int device)
{
  snprintf(text, length, "GPU-00000000-0000-0000-0000-0000000000%02x", (unsigned)device);
}

nvmlReturn_t stub_nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
  char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
  for (unsigned i = 0; uuid && i < stub_state()->devices; i++) {
    if (!stub_visible((int)i)) continue;
    /* The search initialises all cards that it passes. */
    if (stub_state()->device[i].lost) return NVML_ERROR_GPU_IS_LOST;
    name_of(text, sizeof text, (int)i);
    if (!strcmp(text, uuid)) return stub_nvmlDeviceGetHandleByIndex_v2((unsigned)stub_index_of((int)i), device);
  }
  return uuid ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t stub_nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
  unsigned domain, number;
  if (!bus || sscanf(bus, "%x:%x:", &domain, &number) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (!number || !stub_visible((int)number - 1)) return NVML_ERROR_NOT_FOUND;
  return stub_nvmlDeviceGetHandleByIndex_v2((unsigned)stub_index_of((int)number - 1), device);
}

nvmlReturn_t stub_nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device)
{
  return stub_nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}

nvmlReturn_t stub_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
  int i = stub_nvml_number(device);
  if (i < 0 || !index) return NVML_ERROR_INVALID_ARGUMENT;
  *index = (unsigned)stub_index_of(i);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
  int i = stub_nvml_number(device);
  if (i < 0 || !minor) return NVML_ERROR_INVALID_ARGUMENT;
  *minor = (unsigned)i;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned length)
{
  DEVICE(device, text);
  if (length < 41) return NVML_ERROR_INSUFFICIENT_SIZE;
  name_of(text, length, i);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned length)
{
  if (stub_nvml_number(device) < 0 || !text) return NVML_ERROR_INVALID_ARGUMENT;
  snprintf(text, length, "Stub GPU");
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
  DEVICE(device, pci);
  memset(pci, 0, sizeof *pci);
  pci->bus = (unsigned)i + 1;
  pci->pciDeviceId = 0x233010de;
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", (i + 1) & 0xff);
  snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", (i + 1) & 0xff);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
  return stub_nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t stub_nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
  return stub_nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t stub_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
  DEVICE(device, memory);
  memory->total = stub_state()->device[i].size;
  memory->used = stub_used(0, i);
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
  nvmlMemory_t plain;
  if (memory && memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  nvmlReturn_t result = memory ? stub_nvmlDeviceGetMemoryInfo(device, &plain) : NVML_ERROR_INVALID_ARGUMENT;
  if (result != NVML_SUCCESS) return result;
  memory->total = plain.total;
  memory->used = plain.used;
  memory->free = plain.free;
  memory->reserved = RESERVED;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
  DEVICE(device, memory);
  memory->bar1Total = memory->bar1Free = stub_state()->device[i].size;
  memory->bar1Used = 0;
  return NVML_SUCCESS;
}

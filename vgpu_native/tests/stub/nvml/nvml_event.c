/* Critical errors of cards, which tests write with vgpu_stub_xid. Each waiting process gets each once. */
#include "nvml_stub.h"

#include <stdlib.h>
#include <time.h>

#include "vgpu_stub.h"

struct nvmlEventSet_st {
  uint64_t seen;
  unsigned devices; /* a bit for each watched card */
};

EXPORT void vgpu_stub_xid(int device, unsigned xid)
{
  stub_xid(device, xid);
}

EXPORT void vgpu_stub_lose(int device, int lost)
{
  if (stub_state()) stub_state()->device[device].lost = (uint64_t)lost;
}

nvmlReturn_t stub_nvmlEventSetCreate(nvmlEventSet_t *set)
{
  if (!set) return NVML_ERROR_INVALID_ARGUMENT;
  *set = calloc(1, sizeof **set);
  if (!*set) return NVML_ERROR_MEMORY;
  (*set)->seen = stub_state()->events;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlEventSetFree(nvmlEventSet_t set)
{
  free(set);
  return set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t stub_nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
  DEVICE(device, types);
  *types = nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
  DEVICE(device, set);
  if (types & nvmlEventTypeXidCriticalError) set->devices |= 1u << i;
  return NVML_SUCCESS;
}

static int next(nvmlEventSet_t set, nvmlEventData_t *data)
{
  struct stub_event event;
  while (stub_next_event(&set->seen, &event)) {
    if (!(set->devices >> event.device & 1)) continue;
    *data = (nvmlEventData_t){.device = stub_nvml_handle(event.device),
                              .eventType = nvmlEventTypeXidCriticalError,
                              .eventData = event.xid,
                              .gpuInstanceId = ~0u,
                              .computeInstanceId = ~0u};
    return 1;
  }
  return 0;
}

nvmlReturn_t stub_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned ms)
{
  if (!set || !data) return NVML_ERROR_INVALID_ARGUMENT;
  uint64_t end = stub_now() + ms * 1000000ull;
  while (!next(set, data)) {
    if (stub_now() >= end) return NVML_ERROR_TIMEOUT;
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned ms)
{
  return stub_nvmlEventSetWait_v2(set, data, ms);
}

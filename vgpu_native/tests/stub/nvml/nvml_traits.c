/* The constant attributes of a card: kind, topology, modes and counters of errors.
 *
 * Cards 0 and 1, 2 and 3, … share a switch; the first half is at one processor, the rest at another. */
#include "nvml_stub.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static unsigned half(int device)
{
  return (unsigned)device * 2 / stub_state()->devices;
}

nvmlReturn_t stub_nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other,
                                                      nvmlGpuTopologyLevel_t *level)
{
  DEVICE(device, level);
  int k = stub_nvml_number(other);
  if (k < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *level = i == k               ? NVML_TOPOLOGY_INTERNAL
           : i / 2 == k / 2     ? NVML_TOPOLOGY_SINGLE
           : half(i) == half(k) ? NVML_TOPOLOGY_NODE
                                : NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t which,
                                         nvmlGpuP2PStatus_t *status)
{
  DEVICE(device, status);
  if (stub_nvml_number(other) < 0) return NVML_ERROR_INVALID_ARGUMENT;
  *status = which == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceOnSameBoard(nvmlDevice_t device, nvmlDevice_t other, int *same)
{
  DEVICE(device, same);
  *same = i == stub_nvml_number(other);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node)
{
  DEVICE(device, node);
  *node = half(i);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *nodes,
                                              nvmlAffinityScope_t scope)
{
  (void)scope;
  DEVICE(device, nodes);
  if (!size) return NVML_ERROR_INVALID_ARGUMENT;
  memset(nodes, 0, size * sizeof *nodes);
  nodes[0] = 1ul << half(i);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, unsigned long *set)
{
  DEVICE(device, set);
  long processors = sysconf(_SC_NPROCESSORS_ONLN), bits = (long)(8 * sizeof *set);
  memset(set, 0, size * sizeof *set);
  for (long k = 0; k < processors && k / bits < (long)size; k++) set[k / bits] |= 1ul << (k % bits);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, unsigned long *set,
                                                      nvmlAffinityScope_t scope)
{
  (void)scope;
  return stub_nvmlDeviceGetCpuAffinity(device, size, set);
}

nvmlReturn_t stub_nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
  DEVICE(device, current && pending);
  *current = *pending = NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}

/* Functions that return one number for every card. */
#define SAYS(name, type, value)                                          \
  nvmlReturn_t stub_nvmlDevice##name(nvmlDevice_t device, type *answer) \
  {                                                                      \
    DEVICE(device, answer);                                              \
    *answer = value;                                                     \
    return NVML_SUCCESS;                                                 \
  }

SAYS(IsMigDeviceHandle, unsigned, 0)
SAYS(GetMaxMigDeviceCount, unsigned, 0)
SAYS(GetBrand, nvmlBrandType_t, NVML_BRAND_NVIDIA)
SAYS(GetArchitecture, nvmlDeviceArchitecture_t, NVML_DEVICE_ARCH_HOPPER)
SAYS(GetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
SAYS(GetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
SAYS(GetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
SAYS(GetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
SAYS(GetNumGpuCores, unsigned, 16896)
SAYS(GetPowerUsage, unsigned, 100000)
SAYS(GetPowerManagementLimit, unsigned, 700000)
SAYS(GetEnforcedPowerLimit, unsigned, 700000)
SAYS(GetMaxPcieLinkGeneration, unsigned, 5)
SAYS(GetMaxPcieLinkWidth, unsigned, 16)
SAYS(GetRetiredPagesPendingStatus, nvmlEnableState_t, NVML_FEATURE_DISABLED)

nvmlReturn_t stub_nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned *degrees)
{
  (void)sensor;
  DEVICE(device, degrees);
  *degrees = 40;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
  DEVICE(device, major && minor);
  *major = 9;
  *minor = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetSerial(nvmlDevice_t device, char *text, unsigned length)
{
  DEVICE(device, text);
  snprintf(text, length, "stub-%d", i);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
  DEVICE(device, current && pending);
  *current = *pending = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                              nvmlEccCounterType_t counter, unsigned long long *errors)
{
  (void)type, (void)counter;
  DEVICE(device, errors);
  *errors = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                            unsigned *pending, unsigned *failed)
{
  DEVICE(device, corrected && uncorrected && pending && failed);
  *corrected = *uncorrected = *pending = *failed = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlUnitGetCount(unsigned *count)
{
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

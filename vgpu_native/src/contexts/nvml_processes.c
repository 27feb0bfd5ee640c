#include "contexts/nvml_processes.h"

#include <dlfcn.h>
#include <errno.h>
#include <nvml.h>

#include "core/device_entries.h"

enum { HANDLES = 64 };

/* NVML is loaded and initialised once. It counts initialisations, so two threads may both do it. */
static bool is_ready(void) {
  static int ready;
  int now = __atomic_load_n(&ready, __ATOMIC_ACQUIRE), error = errno;
  if (!now) {
    now = dlopen("libnvidia-ml.so.1", RTLD_LAZY) && REAL(nvmlInit_v2)() == NVML_SUCCESS ? 1 : -1;
    __atomic_store_n(&ready, now, __ATOMIC_RELEASE);
  }
  errno = error;
  return now == 1;
}

static bool find_handle(CUdevice device, nvmlDevice_t *handle) {
  CUuuid uuid;
  char text[VGPU_UUID_BYTES];
  if (!HAS(cuDeviceGetUuid_v2) || REAL(cuDeviceGetUuid_v2)(&uuid, device) != CUDA_SUCCESS) return false;
  vgpu_uuid_text((const unsigned char *)uuid.bytes, text);
  return REAL(nvmlDeviceGetHandleByUUID)(text, handle) == NVML_SUCCESS;
}

/* A search by uuid asks all cards, so its result is kept. */
static bool handle_of(CUdevice device, nvmlDevice_t *handle) {
  static nvmlDevice_t handles[HANDLES];
  bool kept = device >= 0 && device < HANDLES;
  *handle = kept ? __atomic_load_n(&handles[device], __ATOMIC_ACQUIRE) : NULL;
  if (*handle) return true;
  if (!is_ready() || !find_handle(device, handle)) return false;
  if (kept) __atomic_store_n(&handles[device], *handle, __ATOMIC_RELEASE);
  return true;
}

bool vgpu_processes_read(CUdevice device, struct vgpu_processes *list) {
  nvmlProcessInfo_t read[VGPU_PROCESSES_MAX];
  nvmlDevice_t handle;
  unsigned count = VGPU_PROCESSES_MAX;
  list->count = 0;
  if (!handle_of(device, &handle)) return false;
  if (REAL(nvmlDeviceGetComputeRunningProcesses_v3)(handle, &count, read) != NVML_SUCCESS) return false;
  for (unsigned i = 0; i < count && i < VGPU_PROCESSES_MAX; i++) {
    uint64_t bytes = read[i].usedGpuMemory == ~0ULL ? 0 : read[i].usedGpuMemory;
    list->at[list->count++] = (struct vgpu_process_figure){read[i].pid, bytes};
  }
  return true;
}

uint64_t vgpu_processes_bytes(const struct vgpu_processes *list, unsigned pid) {
  for (unsigned i = 0; i < list->count; i++)
    if (list->at[i].pid == pid) return list->at[i].bytes;
  return 0;
}

bool vgpu_processes_have(const struct vgpu_processes *list, unsigned pid) {
  for (unsigned i = 0; i < list->count; i++)
    if (list->at[i].pid == pid) return true;
  return false;
}

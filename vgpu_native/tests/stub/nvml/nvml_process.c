/* The processes that use a card, and its utilisation. Pids are those that the processes have themselves, plus an
 * offset if a test sets that. */
#include "nvml_stub.h"

#include <stdio.h>
#include <string.h>

/* The shortest time between two reads of a busy counter that gives a meaningful figure. */
#define WINDOW 100000000ull

struct look {
  pid_t pid;
  uint64_t when, busy;
  unsigned percent;
};

static unsigned listed_pid(pid_t pid)
{
  return (unsigned)pid + (unsigned)stub_setting("VGPU_STUB_PID_OFFSET", 0);
}

static struct look cards[STUB_DEVICES], processes[STUB_DEVICES][STUB_PROCESSES];

static unsigned percent_since(struct look *look, uint64_t busy)
{
  uint64_t now = stub_now(), passed = now - look->when;
  if (!look->when || busy < look->busy) *look = (struct look){look->pid, now, busy, 0};
  else if (passed >= WINDOW) {
    uint64_t percent = (busy - look->busy) * 100 / passed;
    *look = (struct look){look->pid, now, busy, percent > 100 ? 100 : (unsigned)percent};
  }
  return look->percent;
}

nvmlReturn_t stub_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
  DEVICE(device, rates);
  rates->gpu = percent_since(&cards[i], stub_busy_ns(0, i));
  rates->memory = 0;
  return NVML_SUCCESS;
}

/* All versions start alike, and differ in the size of an entry. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, void *entries, size_t size)
{
  struct stub_user users[STUB_PROCESSES];
  DEVICE(device, count);
  unsigned found = stub_users(i, users, STUB_PROCESSES), room = *count;
  uint64_t hide = stub_setting("VGPU_STUB_HIDE_PROCESSES", 0);
  if (hide == 1) found = 0;
  *count = found;
  if (found > room || (found && !entries)) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned k = 0; k < found; k++) {
    nvmlProcessInfo_t entry = {listed_pid(users[k].pid), hide ? ~0ull : users[k].used, ~0u, ~0u};
    memcpy((char *)entries + k * size, &entry, size < sizeof entry ? size : sizeof entry);
  }
  return NVML_SUCCESS;
}

static nvmlReturn_t nobody(nvmlDevice_t device, unsigned *count)
{
  DEVICE(device, count);
  *count = 0;
  return NVML_SUCCESS;
}

#define LISTS(suffix, type)                                                                             \
  nvmlReturn_t stub_nvmlDeviceGetComputeRunningProcesses##suffix(nvmlDevice_t device, unsigned *count,  \
                                                                 type *entries)                         \
  {                                                                                                     \
    return list(device, count, entries, sizeof *entries);                                               \
  }                                                                                                     \
  nvmlReturn_t stub_nvmlDeviceGetGraphicsRunningProcesses##suffix(nvmlDevice_t device, unsigned *count, \
                                                                  type *entries)                        \
  {                                                                                                     \
    (void)entries;                                                                                      \
    return nobody(device, count);                                                                       \
  }                                                                                                     \
  nvmlReturn_t stub_nvmlDeviceGetMPSComputeRunningProcesses##suffix(nvmlDevice_t device,                \
                                                                    unsigned *count, type *entries)     \
  {                                                                                                     \
    (void)entries;                                                                                      \
    return nobody(device, count);                                                                       \
  }

LISTS(, nvmlProcessInfo_v1_t)
LISTS(_v2, nvmlProcessInfo_v2_t)
LISTS(_v3, nvmlProcessInfo_t)

static unsigned percent_of(int device, const struct stub_user *user)
{
  struct look *look = processes[device];
  int k = 0;
  while (k < STUB_PROCESSES - 1 && look[k].pid && look[k].pid != user->pid) k++;
  if (look[k].pid != user->pid) look[k] = (struct look){.pid = user->pid};
  return percent_since(&look[k], user->busy_ns);
}

nvmlReturn_t stub_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                  unsigned *count, unsigned long long since)
{
  (void)since;
  struct stub_user users[STUB_PROCESSES];
  DEVICE(device, count);
  unsigned found = stub_users(i, users, STUB_PROCESSES), room = *count;
  *count = found;
  if (!found) return NVML_ERROR_NOT_FOUND;
  if (!samples || found > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned k = 0; k < found; k++)
    samples[k] = (nvmlProcessUtilizationSample_t){
      .pid = listed_pid(users[k].pid), .timeStamp = stub_now() / 1000, .smUtil = percent_of(i, &users[k])};
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%u/comm", pid);
  FILE *file = fopen(path, "re");
  if (!file) return NVML_ERROR_NOT_FOUND;
  char *read = fgets(name, (int)length, file);
  fclose(file);
  if (!read) return NVML_ERROR_UNKNOWN;
  name[strcspn(name, "\n")] = 0;
  return NVML_SUCCESS;
}

/* memory_shell [ORDINAL]: execute the lines of standard input, and print one line for each.
 *
 *   take ALLOCATOR BYTES   the driver's result
 *   give                   free the last allocation: the driver's result
 *   export                 the last allocation: the eight words of its handle
 *   open WORD…             memory of another process: the driver's result
 *   close                  the memory opened last: the driver's result
 *   send BYTES             create a handle and export it as a file: its pid and descriptor
 *   pass                   export the handle sent or received last as a file: its pid and descriptor
 *   receive PID FILE       import such a handle: the driver's result
 *   reset                  end the context, and begin again: 0
 *   release                the handle sent or received last: the driver's result
 *   wait                   for the device: the driver's result
 *   trim                   the device's pool: the driver's result
 *   info                   free and total bytes of CUDA, then total, free and used of NVML
 *   used                   bytes of the device that the stub has allocated */
#include <dlfcn.h>
#include <fcntl.h>
#include <nvml.h>
#include <unistd.h>

#include "allocators.h"

static struct taken held[100000];
static unsigned count;
static CUdevice device;

static const struct allocator *named(const char *name) {
  for (const struct allocator *by = allocators; by < allocators + ALLOCATORS; by++) {
    if (!strcmp(by->name, name)) return by;
  }
  fprintf(stderr, "%s: no such allocator\n", name);
  exit(2);
}

static int take_one(const char *name, uint64_t bytes) {
  struct taken taken = {.by = named(name)};
  CUresult result = taken.by->take(bytes, &taken);
  if (result == CUDA_SUCCESS) held[count++] = taken;
  return (int)result;
}

static int give_one(void) {
  CHECK(count);
  struct taken taken = held[--count];
  return (int)taken.by->give(&taken);
}

static int trim(void) {
  CUmemoryPool pool;
  OK(cuDeviceGetMemPool(&pool, device));
  return (int)cuMemPoolTrimTo(pool, 0);
}

static CUuuid uuid_now(void) {
  CUuuid uuid;
  OK(cuDeviceGetUuid_v2(&uuid, device));
  return uuid;
}

/* NVML as programs use it: opened, and each function looked up. */
static nvmlMemory_t of_nvml(void) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  CHECK(library);
  nvmlReturn_t (*init)(void) = dlsym(library, "nvmlInit_v2");
  nvmlReturn_t (*by_uuid)(const char *, nvmlDevice_t *) = dlsym(library, "nvmlDeviceGetHandleByUUID");
  nvmlReturn_t (*info)(nvmlDevice_t, nvmlMemory_t *) = dlsym(library, "nvmlDeviceGetMemoryInfo");
  nvmlReturn_t (*info_v2)(nvmlDevice_t, nvmlMemory_v2_t *) = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
  CUuuid uuid = uuid_now();
  char text[64];
  unsigned char *b = (unsigned char *)uuid.bytes;
  snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
           b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  nvmlDevice_t handle;
  nvmlMemory_t memory;
  nvmlMemory_v2_t memory_v2 = {.version = nvmlMemory_v2};
  CHECK(init() == NVML_SUCCESS);
  CHECK(by_uuid(text, &handle) == NVML_SUCCESS);
  CHECK(info(handle, &memory) == NVML_SUCCESS);
  CHECK(info_v2(handle, &memory_v2) == NVML_SUCCESS);
  CHECK(memory.total == memory_v2.total && memory.free == memory_v2.free && memory.used == memory_v2.used);
  CHECK(memory.free + memory.used == memory.total);
  return memory;
}

static void show(void) {
  size_t free, total;
  OK(cuMemGetInfo_v2(&free, &total));
  nvmlMemory_t nvml = of_nvml();
  printf("%zu %zu %llu %llu %llu\n", free, total, nvml.total, nvml.free, nvml.used);
}

static CUdeviceptr opened[1000];
static CUmemGenericAllocationHandle handles[1000];
static unsigned opens, handle_count;

static void export_last(void) {
  union {
    CUipcMemHandle handle;
    unsigned long long word[8];
  } out;
  OK(cuIpcGetMemHandle(&out.handle, held[count - 1].handle));
  for (int i = 0; i < 8; i++) printf("%llu%c", out.word[i], i == 7 ? '\n' : ' ');
}

static int open_words(char *words) {
  union {
    CUipcMemHandle handle;
    unsigned long long word[8];
  } in;
  for (int i = 0; i < 8; i++) in.word[i] = strtoull(words, &words, 10);
  CUresult result = cuIpcOpenMemHandle_v2(&opened[opens], in.handle, 1);
  opens += result == CUDA_SUCCESS;
  return (int)result;
}

static void pass_handle(void) {
  int file;
  OK(cuMemExportToShareableHandle(&file, handles[handle_count - 1], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  printf("%d %d\n", (int)getpid(), file);
}

static void send_handle(uint64_t bytes) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  OK(cuMemCreate(&handles[handle_count++], bytes, &prop, 0));
  pass_handle();
}

static int receive_handle(int pid, int number) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, number);
  int file = open(name, O_RDWR);
  CHECK(file >= 0);
  CUresult result = cuMemImportFromShareableHandle(&handles[handle_count], (void *)(intptr_t)file,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  handle_count += result == CUDA_SUCCESS;
  close(file);
  return (int)result;
}

static void reset(int ordinal) {
  OK(cuDevicePrimaryCtxReset_v2(device));
  begin(ordinal);
  count = opens = 0;
  puts("0");
}

int main(int arguments, char **argument) {
  char line[400], name[100];
  unsigned long long bytes;
  int pid, file;
  int ordinal = arguments > 1 ? atoi(argument[1]) : 0;
  begin(ordinal);
  device = device_now();
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "take %99s %llu", name, &bytes) == 2) printf("%d\n", take_one(name, bytes));
    else if (!strcmp(line, "give\n")) printf("%d\n", give_one());
    else if (!strcmp(line, "wait\n")) printf("%d\n", (int)cuCtxSynchronize());
    else if (!strcmp(line, "trim\n")) printf("%d\n", trim());
    else if (!strcmp(line, "export\n")) export_last();
    else if (!strncmp(line, "open ", 5)) printf("%d\n", open_words(line + 5));
    else if (!strcmp(line, "close\n")) printf("%d\n", (int)cuIpcCloseMemHandle(opened[--opens]));
    else if (sscanf(line, "send %llu", &bytes) == 1) send_handle(bytes);
    else if (!strcmp(line, "pass\n")) pass_handle();
    else if (sscanf(line, "receive %d %d", &pid, &file) == 2) printf("%d\n", receive_handle(pid, file));
    else if (!strcmp(line, "release\n")) printf("%d\n", (int)cuMemRelease(handles[--handle_count]));
    else if (!strcmp(line, "reset\n")) reset(ordinal);
    else if (!strcmp(line, "info\n")) show();
    else if (!strcmp(line, "used\n")) printf("%llu\n", (unsigned long long)physical());
    else CHECK(!"a command");
    fflush(stdout);
  }
  return 0;
}

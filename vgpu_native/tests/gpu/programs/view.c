/* Print the bytes of the first device that NVML counts as used by all processes. With an argument it prints
 * its usage: it needs no driver, so this shows whether the programs of the bundle start here. */
#include <dlfcn.h>
#include <nvml.h>
#include <stdio.h>

int main(int count, char **arguments) {
  if (count > 1) return printf("usage: %s\n", arguments[0]) < 0;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  __typeof__(&nvmlInit_v2) init = (__typeof__(init))dlsym(library, "nvmlInit_v2");
  __typeof__(&nvmlDeviceGetHandleByIndex_v2) by_index =
      (__typeof__(by_index))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
  __typeof__(&nvmlDeviceGetMemoryInfo) ask =
      (__typeof__(ask))dlsym(library, "nvmlDeviceGetMemoryInfo");
  nvmlDevice_t device;
  nvmlMemory_t memory;
  if (!init || !by_index || !ask || init() || by_index(0, &device) || ask(device, &memory)) return 1;
  printf("%llu\n", memory.used);
  return 0;
}

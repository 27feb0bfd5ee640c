/* Describe the device and calibrate the kernel `work`: a line for each, `name TAB value`.
 *
 *   probe    prints name, uuid, versions, attributes, the timer's resolution, turns per microsecond, the
 *            time of an empty kernel, and the bytes that one allocation of some sizes really takes */
#include "gpu.h"

enum { LAUNCHES = 2000, TRIES = 64 };

static void describe(CUdevice device) {
  static const struct { const char *name; CUdevice_attribute which; } attributes[] = {
      {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {"capability_major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {"capability_minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {"pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
      {"compute_preemption", CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
      {"kernel_timeout", CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT},
  };
  char name[256] = "";
  CUuuid uuid;
  int version;
  size_t total;
  MUST(cuDriverGetVersion(&version));
  MUST(cuDeviceGetName(name, sizeof name, device));
  MUST(cuDeviceGetUuid(&uuid, device));
  MUST(cuDeviceTotalMem(&total, device));
  printf("name\t%s\ndriver_api\t%d\nmemory\t%zu\nuuid\tGPU-", name, version, total);
  for (int i = 0; i < 16; i++) printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid.bytes[i]);
  puts("");
  for (unsigned i = 0; i < sizeof attributes / sizeof *attributes; i++) {
    int value;
    if (cuDeviceGetAttribute(&value, attributes[i].which, device) == CUDA_SUCCESS)
      printf("%s\t%d\n", attributes[i].name, value);
  }
}

/* The nanoseconds of one `work` of some turns, by the timer in the kernel. */
static double timed(CUfunction work, CUdeviceptr sums, uint64_t turns) {
  uint64_t read[2] = {0};
  void *parameters[] = {&turns, &sums};
  MUST(cuMemsetD8(sums, 0, 24));
  MUST(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
  MUST(cuMemcpyDtoH(read, sums, sizeof read));
  return read[1] ? (double)read[0] / (double)read[1] : 0;
}

/* Two lengths, so that the constant part cancels out; after half a second in which the clock rises. */
static void calibrate(CUfunction work, CUdeviceptr sums) {
  uint64_t begun = now(), few = 100000, many = 1100000;
  double last = timed(work, sums, few), each = 0;
  while (last > 0 && now() - begun < 500000000u) last = timed(work, sums, many);
  if (last > 0) each = (double)(many - few) / (timed(work, sums, many) - timed(work, sums, few)) * 1000;
  printf("turns_per_us\t%.3f\n", each > 0 ? each : 100);
}

/* The smallest difference but 0 that the timer shows. */
static void resolve_timer(CUfunction work, CUdeviceptr sums) {
  double least = 0;
  for (int i = 0; i < TRIES; i++) {
    double took = timed(work, sums, 1 + (uint64_t)i);
    if (took > 0 && (least == 0 || took < least)) least = took;
  }
  printf("timer_ns\t%.0f\n", least);
}

static void time_empty(void) {
  CUfunction nothing = kernel("nothing");
  uint64_t begun = now();
  set_stub_length(0);
  for (int i = 0; i < LAUNCHES; i++) MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
  MUST(cuCtxSynchronize());
  printf("empty_kernel_ns\t%.0f\n", (double)(now() - begun) / LAUNCHES);
}

static size_t left(void) {
  size_t bytes, total;
  MUST(cuMemGetInfo(&bytes, &total));
  return bytes;
}

/* Sixteen of each size: the driver serves small ones out of larger pieces. */
static void weigh(size_t bytes) {
  CUdeviceptr pointers[16];
  size_t before = left();
  for (int i = 0; i < 16; i++) MUST(cuMemAlloc(&pointers[i], bytes));
  printf("bytes_of_%zu\t%.0f\n", bytes, ((double)before - (double)left()) / 16);
  for (int i = 0; i < 16; i++) MUST(cuMemFree(pointers[i]));
}

int main(void) {
  static const size_t sizes[] = {512, 65536, 1 * MIB, 1 * MIB + 512, 2 * MIB, 2 * MIB + 512, 3 * MIB};
  CUdeviceptr sums;
  describe(open_device());
  CUfunction work = kernel("work");
  MUST(cuMemAlloc(&sums, 64));
  set_stub_length(1000);
  calibrate(work, sums);
  resolve_timer(work, sums);
  time_empty();
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) weigh(sizes[i]);
  return 0;
}

/* memory_random SEED OPERATIONS: allocate and free by all allocators in a random order on both devices, with
 * random failures of the driver. After each operation at least the allocated memory is charged; at the end
 * nothing is. Prints how often memory was exhausted. */
#include "allocators.h"

#define HELD 512

static struct taken held[HELD];
static int device_of[HELD];
static unsigned count, refused;
static CUcontext context[2];
static uint64_t state;

static uint64_t chance(uint64_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % below;
}

static void give_one(void) {
  unsigned at = (unsigned)chance(count);
  OK(cuCtxSetCurrent(context[device_of[at]]));
  give(&held[at]);
  count--;
  held[at] = held[count];
  device_of[at] = device_of[count];
}

static void take_one(void) {
  const struct allocator *by = &allocators[chance(ALLOCATORS)];
  uint64_t bytes = 1 + chance(chance(4) ? 64 << 10 : 24 << 20);
  int device = (int)chance(2);
  OK(cuCtxSetCurrent(context[device]));
  if (!chance(20)) {
    vgpu_stub_fail(by->function, 1, CUDA_ERROR_UNKNOWN);
    struct taken taken;
    CUresult result = by->take(bytes, &taken);
    CHECK(result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_OUT_OF_MEMORY);
    vgpu_stub_fail(by->function, 0, 0);
  } else if (take(by, bytes, &held[count])) {
    device_of[count++] = device;
  } else {
    refused++;
  }
}

static void compare(void) {
  for (int device = 0; device < 2; device++) {
    OK(cuCtxSetCurrent(context[device]));
    size_t free, total;
    OK(cuMemGetInfo_v2(&free, &total));
    CHECK(total - free >= physical());
    CHECK(physical() <= total);
  }
}

int main(int arguments, char **argument) {
  CHECK(arguments == 3);
  state = strtoull(argument[1], NULL, 0) * 0x9e3779b97f4a7c15ULL | 1;
  for (int device = 0; device < 2; device++) context[device] = begin(device);
  for (uint64_t left = strtoull(argument[2], NULL, 0); left; left--) {
    if (count == HELD || (count && chance(100) < 45)) give_one();
    else take_one();
    if (!chance(50)) settle();
    compare();
  }
  while (count) give_one();
  for (int device = 0; device < 2; device++) {
    OK(cuCtxSetCurrent(context[device]));
    settle();
    CHECK(charged() == 0);
    CHECK(physical() == 0);
  }
  printf("%u\n", refused);
  return 0;
}

/* Keep the device as busy as possible, with kernels of a fixed length.
 *
 *   busy SECONDS NANOSECONDS    prints how many kernels of that length ended in each second
 *
 * Two kernels are in flight, so that the device never waits for the next one. */
#include "gpu.h"

enum { FLIGHT = 2, SECONDS_MAX = 600 };

int main(int count, char **arguments) {
  if (count != 3) return fprintf(stderr, "usage: busy SECONDS NANOSECONDS\n"), 2;
  unsigned seconds = (unsigned)strtoul(arguments[1], NULL, 10);
  uint64_t length = strtoull(arguments[2], NULL, 10);
  static unsigned ended[SECONDS_MAX + 1];
  if (seconds > SECONDS_MAX) seconds = SECONDS_MAX;
  open_device();
  CUfunction spin = kernel("spin");
  CUevent events[FLIGHT];
  void *parameters[] = {&length};
  for (int i = 0; i < FLIGHT; i++) MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
  uint64_t begun = now(), number = 0, second = 0;
  for (; second < seconds; number++) {
    CUevent event = events[number % FLIGHT];
    if (number >= FLIGHT) {
      MUST(cuEventSynchronize(event));
      second = (now() - begun) / 1000000000u;
      ended[second < seconds ? second : seconds]++;
    }
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, parameters, NULL));
    MUST(cuEventRecord(event, 0));
  }
  MUST(cuCtxSynchronize());
  for (unsigned i = 0; i < seconds; i++) printf("%u\n", ended[i]);
  return 0;
}

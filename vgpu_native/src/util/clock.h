/* The clock of all times that are compared: CLOCK_MONOTONIC, in nanoseconds, is one clock for all processes of a
 * machine. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t vgpu_monotonic(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

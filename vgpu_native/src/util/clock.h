/* The clock of all times that are compared: CLOCK_MONOTONIC, in nanoseconds, is one clock for all processes of a
 * machine. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t vgpu_read_clock(clockid_t which) {
  struct timespec time;
  clock_gettime(which, &time);
  return (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
}

static inline uint64_t vgpu_monotonic(void) { return vgpu_read_clock(CLOCK_MONOTONIC); }

/* The same at the kernel's last tick, at most ten milliseconds ago. It takes a fraction of the time to read. */
static inline uint64_t vgpu_last_tick(void) { return vgpu_read_clock(CLOCK_MONOTONIC_COARSE); }

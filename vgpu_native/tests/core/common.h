/* Helpers of the programs that test the ledger. */
#pragma once

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vgpu.h"

#define MIB (1ULL << 20)

/* The entry of the n-th device of the tests. */
static inline int device(unsigned n) {
  const unsigned char uuid[16] = {[15] = (unsigned char)n};
  return vgpu_ready() ? vgpu_entry(uuid, n) : -1;
}

/* The same with the assumed ordinal 0. */
static inline int assumed(unsigned n) {
  const unsigned char uuid[16] = {[15] = (unsigned char)n};
  return vgpu_ready() ? vgpu_entry_assumed(uuid, 0) : -1;
}

static inline void *shared(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

static inline uint64_t nanoseconds(void) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  return (uint64_t)clock.tv_sec * 1000000000 + (uint64_t)clock.tv_nsec;
}

static inline void nap(long nanoseconds) {
  nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL);
}

/* A number below `end`, of a sequence that depends on its seed. */
static inline uint64_t random_below(uint64_t *state, uint64_t end) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state % end;
}

/* Rules of what the driver takes for an allocation, under other steps of the stub. */
#pragma once

#include "rules.h"

enum { GRANULES = 256 };
static struct taken granules[GRANULES];

/* What the driver takes is charged, neither more nor less. */
static void granules_of(const char *name, uint64_t most) {
  static const uint64_t sizes[] = {1, 513, 5000, 65537, MIB - 1, MIB, MIB + 1, 2 * MIB, 2 * MIB + 512};
  uint64_t state = 12345;
  unsigned count = 0;
  for (unsigned i = 0; i < 3000; i++) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    uint64_t bytes = sizes[(state >> 33) % (sizeof sizes / sizeof *sizes)];
    if (count == GRANULES || (count && state >> 60 < 7)) give(&granules[--count]);
    else count += bytes <= most && take(by(name), bytes, &granules[count]);
    CHECK(charged() == physical() && physical() <= 100 * MIB);
  }
  while (count) give(&granules[--count]);
  CHECK(charged() == 0 && physical() == 0);
}

static void granules_linear(void) { granules_of("linear", UINT64_MAX); }

/* Of small allocations every second is freed: the blocks of the others stay in use. */
static void small_holes(void) {
  unsigned count = 0;
  while (count < GRANULES && take(by("linear"), MIB, &granules[count])) count++;
  CHECK(count >= 49);
  for (unsigned i = 0; i < count; i += 2) give(&granules[i]);
  CHECK(charged() == physical());
  while (take(by("linear"), 2 * MIB, &some)) CHECK(physical() <= 100 * MIB);
  CHECK(charged() >= physical() && physical() <= 100 * MIB);
}

/* A block that is charged may be filled when there is no room for another. */
static void last_block(void) {
  CHECK(take(by("linear"), 98 * MIB, &some));
  unsigned count = 0;
  while (count < GRANULES && take(by("linear"), 64 << 10, &granules[count])) {
    CHECK(physical() <= 100 * MIB && charged() >= physical());
    count++;
  }
  CHECK(count == 32 && physical() == 100 * MIB && charged() == 100 * MIB);
  while (count) give(&granules[--count]);
  CHECK(charged() == 98 * MIB && physical() == 98 * MIB);
}

static void pages_of_arrays(void) {
  unsigned count = 0;
  while (count < GRANULES && take(by("array3"), 3 * 65536, &granules[count])) {
    CHECK(charged() >= physical() && physical() <= 100 * MIB);
    count++;
  }
  while (count) give(&granules[--count]);
  while (count < GRANULES && take(by("array3"), 3 * MIB, &granules[count])) {
    CHECK(charged() == physical() && physical() <= 100 * MIB);
    count++;
  }
  CHECK(count >= 25);
}

/* A pool or the graphs may grow by other steps than were assumed; a smaller one makes the rest usable. */
static void growth(void) {
  cuuint64_t reserved;
  CHECK(take(by("pool"), 5 * MIB, &some));
  CHECK(charged() >= physical() && physical() <= 100 * MIB);
  OK(cuMemPoolGetAttribute(pool_of_mine(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  unsigned count = 0;
  while (count < GRANULES && take(by("pool"), 5 * MIB, &granules[count])) {
    CHECK(charged() >= physical() && physical() <= 100 * MIB);
    count++;
  }
  CHECK(physical() + reserved > 100 * MIB);
}

static void graph_growth(void) {
  static const uint64_t sizes[] = {17, 34, 97};
  CUgraphExec exec;
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < 3 && result == CUDA_SUCCESS; i++) {
    OK(graph_with(sizes[i] * MIB, &exec));
    result = cuGraphLaunch(exec, NULL);
    CHECK(charged() >= physical() && physical() <= 100 * MIB);
  }
  CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
}

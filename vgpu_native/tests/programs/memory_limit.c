/* memory_limit ALLOCATOR BYTES: fill up to the limit in blocks, give them back in another order.
 *
 * The limit must hold for the charged and for the allocated memory, to one block. After all blocks are freed
 * nothing is charged. A call that fails in the driver leaves nothing charged. */
#include "allocators.h"

#define BLOCKS 4096

static struct taken held[BLOCKS];

static unsigned fill(const struct allocator *by, uint64_t block, uint64_t limit) {
  unsigned count = 0;
  while (count < BLOCKS && take(by, block, &held[count])) {
    count++;
    CHECK(charged() >= physical());
    CHECK(physical() <= limit);
  }
  return count;
}

static void empty(unsigned count) {
  for (unsigned i = 0; i < count; i += 2) give(&held[i]);
  CHECK(charged() >= physical());
  for (unsigned i = count; i--;) {
    if (i % 2) give(&held[i]);
  }
  settle();
  CHECK(charged() == 0);
  CHECK(physical() == 0);
}

static void fail_each(const struct allocator *by, uint64_t block) {
  struct taken taken = {.by = by};
  static const CUresult results[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_UNKNOWN};
  for (unsigned i = 0; i < sizeof results / sizeof *results; i++) {
    vgpu_stub_fail(by->function, 1, (int)results[i]);
    CHECK(by->take(block, &taken) == results[i]);
    settle();
    CHECK(charged() == 0);
  }
  vgpu_stub_fail(by->function, 0, 0);
}

int main(int count, char **arguments) {
  CHECK(count == 3);
  const struct allocator *by = allocators;
  while (strcmp(by->name, arguments[1])) CHECK(++by < allocators + ALLOCATORS);
  uint64_t block = strtoull(arguments[2], NULL, 0);
  begin(0);
  size_t free, limit;
  OK(cuMemGetInfo_v2(&free, &limit));
  CHECK(free == limit);
  fail_each(by, block);
  unsigned first = fill(by, block, limit), second;
  uint64_t full = charged();
  CHECK(first > 1 && first < BLOCKS);
  CHECK(full <= limit);
  CHECK(full + block + by->step > limit);
  empty(first);
  second = fill(by, block, limit);
  CHECK(second == first);
  empty(second);
  printf("%u\n", first);
  return 0;
}

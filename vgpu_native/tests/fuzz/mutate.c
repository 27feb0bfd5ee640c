#include "loop.h"

#include <string.h>

/* Numbers at which parsers fail. */
static const uint64_t INTERESTING[] = {
    0, 1, 2, 15, 16, 17, 127, 128, 255, 256, 257, 4095, 4096, 65535, 65536, 106496,
    0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
    0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
enum { INTERESTING_COUNT = sizeof INTERESTING / sizeof *INTERESTING, CHANGES_MAX = 4 };

static uint64_t state = 1;

uint32_t fuzz_random(uint32_t bound) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return bound ? (uint32_t)(state >> 32) % bound : 0;
}

void fuzz_seed(uint64_t seed) { state = seed * 0x9e3779b97f4a7c15u + 1; }

static size_t insert(uint8_t *data, size_t size) {
  size_t at = fuzz_random((uint32_t)size + 1), more = 1 + fuzz_random(16);
  if (size + more > FUZZ_BYTES_MAX) return size;
  memmove(data + at + more, data + at, size - at);
  for (size_t i = 0; i < more; i++) data[at + i] = (uint8_t)fuzz_random(256);
  return size + more;
}

static size_t erase(uint8_t *data, size_t size) {
  if (size == 0) return 0;
  size_t at = fuzz_random((uint32_t)size), less = 1 + fuzz_random(16);
  if (less > size - at) less = size - at;
  memmove(data + at, data + at + less, size - at - less);
  return size - less;
}

/* Copy a piece of the input to another place in it. */
static size_t repeat(uint8_t *data, size_t size) {
  if (size < 2) return size;
  size_t from = fuzz_random((uint32_t)size), to = fuzz_random((uint32_t)size);
  size_t most = size - (from > to ? from : to);
  memmove(data + to, data + from, 1 + fuzz_random((uint32_t)most));
  return size;
}

static size_t put_number(uint8_t *data, size_t size) {
  size_t width = (size_t)1 << fuzz_random(4);
  if (size < width) return size;
  uint64_t number = INTERESTING[fuzz_random(INTERESTING_COUNT)] + fuzz_random(3) - 1;
  memcpy(data + fuzz_random((uint32_t)(size - width + 1)), &number, width);
  return size;
}

static size_t put_byte(uint8_t *data, size_t size) {
  if (size) data[fuzz_random((uint32_t)size)] = (uint8_t)fuzz_random(256);
  return size;
}

static size_t flip(uint8_t *data, size_t size) {
  if (size) data[fuzz_random((uint32_t)size)] ^= (uint8_t)(1u << fuzz_random(8));
  return size;
}

size_t fuzz_mutate(uint8_t *data, size_t size) {
  static size_t (*const changes[])(uint8_t *, size_t) = {insert,     erase,    repeat,
                                                         put_number, put_byte, flip};
  for (uint32_t left = 1 + fuzz_random(CHANGES_MAX); left > 0; left--)
    size = changes[fuzz_random(sizeof changes / sizeof *changes)](data, size);
  return size;
}

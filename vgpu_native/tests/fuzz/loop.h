/* A small fuzzer for gcc: mutated inputs, which are kept if they reach new code.
 *
 * A target defines `fuzz_one`. It reports a failure by a crash, a sanitizer's report, or a result other
 * than 0. The running input is always in the file DIRECTORY/last. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_BYTES_MAX = 4096 };

/* Run one input; 0: no failure. */
int fuzz_one(const uint8_t *data, size_t size);

/* A number below `bound`, of a sequence that depends on the seed. */
uint32_t fuzz_random(uint32_t bound);

/* Change an input that has room for FUZZ_BYTES_MAX; returns its new size. */
size_t fuzz_mutate(uint8_t *data, size_t size);

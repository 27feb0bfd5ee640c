/* A small fuzzer for gcc: mutated inputs, kept when they reach code that none before did.
 *
 * A target defines `fuzz_one`. What it finds it says with a crash, a sanitizer's report, or a
 * result other than 0. The input that runs is always in the file DIRECTORY/last. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_BYTES_MAX = 4096 };

/* Run one input; 0: nothing found. */
int fuzz_one(const uint8_t *data, size_t size);

/* A number below `bound`, the same ones for the same seed. */
uint32_t fuzz_random(uint32_t bound);

/* Change an input that has room for FUZZ_BYTES_MAX; returns its new size. */
size_t fuzz_mutate(uint8_t *data, size_t size);

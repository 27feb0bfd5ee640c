/* Arithmetic on sizes and times. Sums and products saturate at UINT64_MAX. */
#pragma once

#include <stdint.h>

static inline uint64_t vgpu_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t vgpu_greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

static inline uint64_t vgpu_sum(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t vgpu_product(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Round up to a multiple of `step`. */
static inline uint64_t vgpu_rounded(uint64_t bytes, uint64_t step) {
  uint64_t over = bytes % step;
  return over ? vgpu_sum(bytes, step - over) : bytes;
}

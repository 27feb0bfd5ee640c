/* One counter for the process, from a start that the kernel chooses. Each word is a mix of the next count
 * (splitmix64), so that threads need no lock. A child of a fork gets a start of its own. */
#include "time/random.h"

#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/fork_handlers.h"

#define STEP 0x9e3779b97f4a7c15ULL

static uint64_t count; /* 0: it has no start yet */

static void forget(void) { count = 0; }

static uint64_t mix(uint64_t word) {
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ word >> 27) * 0x94d049bb133111ebULL;
  return word ^ word >> 31;
}

/* A filter of system calls may forbid the kernel's random numbers. Then the time to the nanosecond is used. */
static __attribute__((noinline)) void start(void) {
  static bool watched;
  uint64_t word = 0, none = 0;
  vgpu_reset_in_children(&watched, forget);
  if (syscall(SYS_getrandom, &word, sizeof word, 0) != sizeof word) {
    word = mix(vgpu_monotonic() ^ (uint64_t)(uintptr_t)&word);
  }
  __atomic_compare_exchange_n(&count, &none, word | 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static uint64_t random_word(void) {
  if (!__atomic_load_n(&count, __ATOMIC_RELAXED)) start();
  return mix(__atomic_add_fetch(&count, STEP, __ATOMIC_RELAXED));
}

/* 64 chances at once: each bit is set with the probability 1 / `one_in`. */
static uint64_t chances(unsigned one_in, uint64_t *from) {
  uint64_t word = ~0ULL;
  for (; one_in > 1; one_in /= 2) word &= mix(*from += STEP);
  return word;
}

unsigned vgpu_chance_gap(unsigned one_in) {
  if (one_in <= 1) return 0;
  uint64_t from = random_word();
  for (unsigned gap = 0; gap < VGPU_GAP_MAX; gap += 64) {
    uint64_t word = chances(one_in, &from);
    if (word) return gap + (unsigned)__builtin_ctzll(word);
  }
  return VGPU_GAP_MAX;
}

#include "util/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void vgpu_futex_wait_while(uint32_t *word, uint32_t value) {
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static uint64_t monotonic(void) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  return (uint64_t)clock.tv_sec * 1000000000 + (uint64_t)clock.tv_nsec;
}

void vgpu_futex_wait_at_most(uint32_t *word, uint32_t value, uint64_t ns) {
  uint64_t end = monotonic() + ns, now;
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value && (now = monotonic()) < end) {
    struct timespec left = {(time_t)((end - now) / 1000000000), (long)((end - now) % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &left, NULL, 0);
  }
}

void vgpu_futex_wake(uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

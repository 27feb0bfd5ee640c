#include "util/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/clock.h"

void vgpu_futex_wait_while(uint32_t *word, uint32_t value) {
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void vgpu_futex_wait_at_most(uint32_t *word, uint32_t value, uint64_t ns) {
  uint64_t end = vgpu_monotonic() + ns, now;
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value && (now = vgpu_monotonic()) < end) {
    struct timespec left = {(time_t)((end - now) / 1000000000), (long)((end - now) % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &left, NULL, 0);
  }
}

void vgpu_futex_wake(uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

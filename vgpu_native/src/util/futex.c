#include "util/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

void vgpu_futex_wait_while(uint32_t *word, uint32_t value) {
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void vgpu_futex_wake(uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

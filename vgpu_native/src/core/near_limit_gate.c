#include "core/near_limit_gate.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

#include "util/assert.h"
#include "util/clock.h"

enum { LEASE_NS = 20000000, PAUSE_NS = 20000, YIELDS = 50, ATTEMPTS = 500 };

/* A signal may end the pause early; errno is preserved. */
static void pause_after(int attempt) {
  int kept = errno;
  if (attempt < YIELDS) sched_yield();
  else nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
  errno = kept;
}

uint64_t vgpu_gate_take(uint64_t *gate) {
  for (int i = 0; i < ATTEMPTS; i++) {
    uint64_t time = vgpu_monotonic(), held = __atomic_load_n(gate, __ATOMIC_RELAXED), mine = time + LEASE_NS;
    /* No holder has it for longer than a lease: a later time is not a holder's. */
    bool free = held <= time || held > mine;
    if (free &&
        __atomic_compare_exchange_n(gate, &held, mine, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return mine;
    pause_after(i);
  }
  return 0;
}

void vgpu_gate_leave(uint64_t *gate, uint64_t taken) {
  VGPU_ASSERT(taken);
  __atomic_compare_exchange_n(gate, &taken, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

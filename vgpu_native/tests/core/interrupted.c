/* Request more than is free, while signals interrupt the wait for a gate that another process holds.
 * errno must not change. */
#include "common.h"

#include <errno.h>
#include <sys/time.h>

static unsigned signals;

static void count(int number) {
  (void)number;
  signals++;
}

int main(void) {
  int entry = device(0);
  const struct vgpu_mapped *mapped = vgpu_region_now();
  if (!mapped || !vgpu_reserve(entry, 90 * MIB)) return 1;
  signal(SIGALRM, count);
  const struct itimerval each = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &each, NULL);
  for (int i = 0; i < 10; i++) {
    mapped->region->gate = nanoseconds() + 15000000;
    errno = 42;
    if (vgpu_reserve(entry, 20 * MIB)) return 1;
    if (errno != 42) return fprintf(stderr, "errno has become %d\n", errno), 1;
  }
  return !signals;
}

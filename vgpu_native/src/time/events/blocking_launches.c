/* The driver reads a variable of the environment when it is initialised, and the program may unset it later. So the
 * launches show it, too: a launch that was delayed returns before its kernel ends, except for short kernels. */
#include "time/events/blocking_launches.h"

#include <stdlib.h>
#include <string.h>

#define IN_TURN 8 /* so many long launches whose kernels have ended are not delayed by chance */

static bool is_set(void) {
  static int known = -1;
  int set = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (set >= 0) return set;
  const char *value = getenv("CUDA_LAUNCH_BLOCKING");
  set = value && *value && strcmp(value, "0") != 0;
  __atomic_store_n(&known, set, __ATOMIC_RELAXED);
  return set;
}

bool vgpu_launches_block(bool ended) {
  static unsigned in_turn;
  if (!ended) __atomic_store_n(&in_turn, 0, __ATOMIC_RELAXED);
  return ended && (is_set() || __atomic_add_fetch(&in_turn, 1, __ATOMIC_RELAXED) > IN_TURN);
}

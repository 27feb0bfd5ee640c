/* Simultaneous requests: barrier PROCESSES MIB ROUNDS. Prints the number of rounds in which more was
 * granted than the limit allows, and in which less was granted than fits. */
#include "common.h"

enum { SPINS = 20000 };

static struct meeting {
  uint32_t arrived, granted, over, under;
} *meeting;
static uint32_t processes, room;

/* Wait until all processes have arrived; the counter only rises. Processes with a core of their own
 * continue at the same time. */
static void meet(uint32_t *met) {
  *met += processes;
  __atomic_fetch_add(&meeting->arrived, 1, __ATOMIC_SEQ_CST);
  for (int spins = 0; __atomic_load_n(&meeting->arrived, __ATOMIC_SEQ_CST) < *met; spins++)
    if (spins > SPINS) sched_yield();
}

static void take_part(bool counts, uint64_t bytes, uint32_t rounds) {
  int entry = device(0);
  uint32_t met = 0;
  for (uint32_t round = 0; round < rounds; round++) {
    meet(&met);
    bool granted = vgpu_reserve(entry, bytes);
    if (granted) __atomic_fetch_add(&meeting->granted, 1, __ATOMIC_SEQ_CST);
    meet(&met);
    if (counts) {
      meeting->over += meeting->granted > room;
      meeting->under += meeting->granted < room;
      meeting->granted = 0;
    }
    if (granted) vgpu_release(entry, bytes);
  }
}

int main(int count, char **words) {
  if (count != 4) return 2;
  processes = (uint32_t)atoi(words[1]);
  uint64_t bytes = strtoull(words[2], NULL, 0) * MIB;
  room = (uint32_t)(vgpu_limit(device(0)) / bytes);
  if (room > processes) room = processes;
  meeting = shared(sizeof *meeting);
  for (uint32_t i = 0; i < processes; i++)
    if (!fork()) return take_part(i == 0, bytes, (uint32_t)atoi(words[3])), 0;
  while (wait(NULL) > 0) {
  }
  printf("{\"over\": %u, \"under\": %u, \"left\": %llu}\n", meeting->over, meeting->under,
         (unsigned long long)vgpu_used(device(0)));
  return 0;
}

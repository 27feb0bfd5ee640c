/* Several processes charge one budget, some are killed meanwhile, and no charge is lost. Two processes call
 * at the same time, again and again, whether they may begin, and one may.
 *
 *   budget [SECONDS]   exits with 1 and the reason if either fails; two processes call for SECONDS (1)
 *
 * The processes are killed at random places. Each counts its charges after them, so that at most one charge
 * per killed process is missing from the counts. */
#include "time/time_budget.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, KILLS = 40, SHARE = 50 };
#define COST_NS 1000
#define WORTH_NS (COST_NS * 100 / SHARE)
#define AHEAD_NS 1000000000ULL /* so that the clock does not overtake what is charged */

static struct shared {
  vgpu_budget budget;
  uint64_t charges[PROCESSES + KILLS];
  uint32_t round, answered, begun; /* of the simultaneous callers */
} *shared;

static pid_t charger(int number) {
  pid_t child = fork();
  if (child) return child;
  for (;;) {
    vgpu_budget_charge(&shared->budget, COST_NS, SHARE);
    __atomic_fetch_add(&shared->charges[number], 1, __ATOMIC_RELAXED);
  }
}

static void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static int wrong(const char *what, long long is, long long should) {
  printf("%s is %lld, not %lld\n", what, is, should);
  return 1;
}

static int check_rules(void) {
  vgpu_budget budget = {0};
  uint64_t now = vgpu_monotonic();
  if (vgpu_budget_wait(&budget, now)) return wrong("the wait for a new budget", 1, 0);
  vgpu_budget_charge(&budget, vgpu_burst(30), 30);
  if (vgpu_budget_wait(&budget, now + 1000000000) != 0) return wrong("the wait a second after a burst", 1, 0);
  vgpu_budget_charge(&budget, 30000000, 30); /* a tenth of a second at 30 percent */
  uint64_t wait = vgpu_budget_wait(&budget, vgpu_monotonic());
  if (wait < 90000000 || wait > 100000000) return wrong("the wait", (long long)wait, 100000000);
  vgpu_budget_charge(&budget, -30000000, 30);
  if (vgpu_budget_wait(&budget, vgpu_monotonic() + 1000000)) return wrong("the wait after giving back", 1, 0);
  budget.used_until = UINT64_MAX; /* a tenant may write anything */
  if (vgpu_budget_wait(&budget, now)) return wrong("the wait for nonsense", 1, 0);
  budget.used_until = now + (1ULL << 62);
  if (vgpu_budget_wait(&budget, now) > 600000000000ULL) return wrong("the wait for far ahead", 1, 0);
  return 0;
}

static int check_charges(void) {
  uint64_t begun = vgpu_monotonic() + AHEAD_NS;
  shared->budget.used_until = begun;
  pid_t children[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) children[i] = charger(i);
  for (int i = 0; i < KILLS; i++) {
    usleep(10000);
    end(children[i % PROCESSES]);
    children[i % PROCESSES] = charger(PROCESSES + i);
  }
  for (int i = 0; i < PROCESSES; i++) end(children[i]);
  uint64_t charges = 0, missing = PROCESSES + KILLS;
  for (int i = 0; i < PROCESSES + KILLS; i++) charges += shared->charges[i];
  uint64_t charged = (shared->budget.used_until - begun) / WORTH_NS;
  printf("%llu charges, %llu in the budget\n", (unsigned long long)charges, (unsigned long long)charged);
  return charged < charges || charged > charges + missing;
}

/* A second of work at half of the device: for two seconds no other process may begin. */
static void ask(void) {
  uint64_t wait = vgpu_budget_take(&shared->budget, 1000000000, SHARE, vgpu_monotonic());
  if (!wait) __atomic_fetch_add(&shared->begun, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&shared->answered, 1, __ATOMIC_ACQ_REL);
}

static void wait_for(const uint32_t *word, uint32_t value) {
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) sched_yield();
}

static pid_t asker(void) {
  pid_t child = fork();
  if (child) return child;
  for (uint32_t round = 1;; round++) {
    wait_for(&shared->round, round);
    ask();
  }
}

static int check_asking(double seconds) {
  uint64_t until = vgpu_monotonic() + (uint64_t)(seconds * 1e9);
  shared->round = 0;
  pid_t child = asker();
  while (vgpu_monotonic() < until) {
    shared->begun = shared->answered = 0;
    shared->budget.used_until = vgpu_monotonic();
    __atomic_fetch_add(&shared->round, 1, __ATOMIC_RELEASE);
    ask();
    wait_for(&shared->answered, 2);
    if (shared->begun != 1) break;
  }
  end(child);
  return shared->begun == 1 ? 0 : wrong("processes that began", shared->begun, 1);
}

int main(int count, char **arguments) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return check_rules() || check_charges() || check_asking(count > 1 ? atof(arguments[1]) : 1);
}

/* Kill at every instruction: step STRIDE grant | refusal | attach | thread | share | join. Each child is stepped through
 * STRIDE more instructions and killed there. Afterwards its memory must not count, and its slot must be
 * free for the next process.
 *
 * `share` exports memory to other processes and frees it, which at no instruction uncharges it before the end.
 * `join` imports memory that this process has exported, and frees it.
 *
 * `attach` steps the thread that attaches, `thread` the thread that owns the slot afterwards. */
#include <sys/ptrace.h>

#include "common.h"
#include "core/process_slots.h"
#include "core/shared_memory.h"

enum { MOST = 100000, KEY = 77 };

static const char *what;
static int entry;

static void share_and_free(void) {
  if (!vgpu_reserve(entry, 300 * MIB)) return;
  int share = vgpu_share_begin(entry, 300 * MIB, KEY + 1);
  vgpu_release(entry, 300 * MIB);
  vgpu_share_leave(share);
}

static void child(void) {
  bool attached = what[0] != 'a' && what[0] != 't';
  if (attached) vgpu_ready();
  if (what[0] == 's') share_and_free(); /* the first time also registers for forks */
  ptrace(PTRACE_TRACEME, 0, NULL, NULL);
  raise(SIGSTOP);
  if (!attached) vgpu_ready();
  else if (what[0] == 's') share_and_free();
  else if (what[0] == 'j') vgpu_share_leave(vgpu_share_join(KEY));
  else if (what[0] == 'g') {
    if (vgpu_reserve(entry, 600 * MIB)) vgpu_release(entry, 600 * MIB);
  } else vgpu_reserve(entry, 950 * MIB);
  raise(SIGSTOP);
  _exit(0);
}

/* The thread to step: the child's first one, or the one that it starts. The other one continues. 0: the
 * child has ended. */
static pid_t stepped(pid_t pid) {
  int status;
  waitpid(pid, &status, __WALL);
  if (what[0] != 't') return pid;
  ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACECLONE);
  ptrace(PTRACE_CONT, pid, NULL, NULL);
  waitpid(pid, &status, __WALL);
  unsigned long thread = 0;
  ptrace(PTRACE_GETEVENTMSG, pid, NULL, &thread);
  waitpid((pid_t)thread, &status, __WALL);
  ptrace(PTRACE_CONT, pid, NULL, NULL);
  return (pid_t)thread;
}

/* Step a number of instructions. False: the child ended before. */
static bool step(pid_t pid, unsigned count) {
  pid_t thread = stepped(pid);
  for (unsigned i = 0; i < count; i++) {
    int status;
    ptrace(PTRACE_SINGLESTEP, thread, NULL, NULL);
    pid_t who = waitpid(thread == pid ? pid : -1, &status, __WALL);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP || (thread != pid && who == pid))
      return false;
  }
  return true;
}

/* Whether a slot is lost to all processes. The first slot is this process's own. */
static bool lost_a_slot(void) {
  const vgpu_region *region = vgpu_region_now()->region;
  for (unsigned i = 1; i < VGPU_SLOTS_MAX; i++)
    if (vgpu_slot_lives(&region->slot[i])) return true;
  return false;
}

/* Whether memory counted, then not, and then again, over the steps. */
static bool counts_again(uint64_t mine) {
  static bool counted, ended;
  bool now = vgpu_used(entry) >= mine + 300 * MIB;
  if (now && ended) return true;
  ended = counted && !now;
  counted = now;
  return false;
}

/* An export of this process, which a killed importer neither keeps nor takes away. */
static bool is_whole_after_export(uint64_t mine) {
  static int exported = -1;
  if (what[0] != 'j') return true;
  bool whole = exported < 0 || vgpu_used(entry) == mine + 200 * MIB;
  vgpu_share_leave(exported);
  whole = whole && vgpu_used(entry) == mine;
  exported = vgpu_share_begin(entry, 200 * MIB, KEY);
  return whole && exported >= 0;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  what = words[2];
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "1000m", 1);
  vgpu_ready();
  entry = device(0);
  uint64_t mine = 100 * MIB, slowest = 0;
  unsigned stride = (unsigned)atoi(words[1]), wrong = 0, steps = 0, kills = 0;
  if (!vgpu_reserve(entry, mine)) return 2;
  is_whole_after_export(mine);
  for (bool more = true; more && !wrong && steps < MOST; steps += stride, kills++) {
    pid_t pid = fork();
    if (!pid) child();
    more = step(pid, steps);
    if (what[0] == 's') wrong += counts_again(mine);
    kill(pid, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0) {
    }
    uint64_t begin = nanoseconds();
    uint64_t all = what[0] == 'j' ? mine + 200 * MIB : mine, rest = 1000 * MIB - all;
    bool whole = vgpu_used(entry) == all && vgpu_reserve(entry, rest);
    uint64_t took = nanoseconds() - begin;
    if (took > slowest) slowest = took;
    if (whole) vgpu_release(entry, rest);
    whole = is_whole_after_export(mine) && whole;
    wrong += !whole || lost_a_slot();
  }
  printf("{\"steps\": %u, \"kills\": %u, \"wrong\": %u, \"slowest_ms\": %.3f}\n", steps, kills,
         wrong, (double)slowest / 1e6);
  return 0;
}

/* Print the ledger's answers: ask reserve 600m used limit release 600m ...
 *
 *   reserve N, release N, charge N    bytes of the chosen device; N may end in m for MiB
 *   share N                           share bytes that are charged; the number of the share
 *   leave N                           leave a share
 *   used, limit, cores, oversubscribes, entry, ready
 *   device N                          choose the N-th device; 0 at first
 *   assume N                          choose it with ordinal 0, as NVML may
 *   await                             wait until the first device has a limit; at most 5 s
 *   files N                           limit open files to N
 *   nap N                             sleep for N milliseconds
 *   wait                              wait until a line can be read
 *   fork                              continue in a child */
#include <sys/resource.h>

#include "common.h"
#include "core/shared_memory.h"

static uint64_t bytes(const char *text) {
  char *unit;
  uint64_t number = strtoull(text, &unit, 0);
  return *unit == 'm' ? number * MIB : number;
}

static void say(unsigned long long number) {
  printf("%llu\n", number);
  fflush(stdout);
}

static int awaited(void) {
  int entry = device(0);
  for (int i = 0; i < 5000 && !vgpu_limit(entry); i++) nap(1000000), entry = device(0);
  return entry;
}

static void limit_files(rlim_t most) { setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, 1024}); }

int main(int count, char **words) {
  int entry = vgpu_ready() ? device(0) : -1;
  for (int i = 1; i < count; i++) {
    const char *word = words[i], *next = words[i + 1];
    if (!strcmp(word, "reserve")) say(vgpu_reserve(entry, bytes(next))), i++;
    else if (!strcmp(word, "release")) vgpu_release(entry, bytes(next)), i++;
    else if (!strcmp(word, "charge")) vgpu_reserve_forced(entry, bytes(next)), i++;
    else if (!strcmp(word, "share")) say((unsigned)vgpu_share_begin(entry, bytes(next), 77)), i++;
    else if (!strcmp(word, "leave")) vgpu_share_leave(atoi(next)), i++;
    else if (!strcmp(word, "device")) entry = device((unsigned)atoi(next)), i++;
    else if (!strcmp(word, "assume")) entry = assumed((unsigned)atoi(next)), i++;
    else if (!strcmp(word, "used")) say(vgpu_used(entry));
    else if (!strcmp(word, "limit")) say(vgpu_limit(entry));
    else if (!strcmp(word, "cores")) say(vgpu_cores(entry));
    else if (!strcmp(word, "oversubscribes")) say(vgpu_oversubscribes());
    else if (!strcmp(word, "entry")) say((unsigned long long)(long long)entry);
    else if (!strcmp(word, "ready")) say(vgpu_ready());
    else if (!strcmp(word, "files")) limit_files((rlim_t)atol(next)), i++;
    else if (!strcmp(word, "await")) entry = awaited();
    else if (!strcmp(word, "nap")) nap(atol(next) * 1000000), i++;
    else if (!strcmp(word, "fork")) {
      if (fork()) return wait(NULL) < 0;
    } else if (!strcmp(word, "wait")) {
      if (getchar() == EOF) return 0;
    } else return fprintf(stderr, "unknown word: %s\n", word), 2;
  }
  return 0;
}

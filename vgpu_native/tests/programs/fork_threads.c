/* fork_threads FORKS: threads allocate and free without end, while the program forks. Each child uses the
 * driver like a new process; afterwards nothing of it is charged. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocators.h"

#define THREADS 3
#define SOON 60 /* seconds; a longer wait is for a thread that does not exist in the child */

static CUcontext context;
static bool enough;

static void *work(void *number) {
  const struct allocator *by = &allocators[(uintptr_t)number];
  OK(cuCtxSetCurrent(context));
  while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
    struct taken taken;
    by = by + 1 < allocators + ALLOCATORS ? by + 1 : allocators;
    if (take(by, MIB, &taken)) give(&taken);
  }
  return NULL;
}

static void child(void) {
  alarm(SOON);
  begin(0);
  for (const struct allocator *by = allocators; by < allocators + ALLOCATORS; by++) {
    struct taken taken;
    bool parents = !strncmp(by->name, "pool", 4); /* that pool is not the child's */
    if (!parents && take(by, MIB, &taken)) give(&taken);
  }
  _exit(0);
}

int main(int count, char **arguments) {
  pthread_t threads[THREADS];
  CHECK(count == 2);
  context = begin(0);
  pool_of_mine();
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(i * 4));
  for (int forks = atoi(arguments[1]); forks; forks--) {
    int status = 1;
    pid_t pid = fork();
    if (!pid) child();
    waitpid(pid, &status, 0);
    CHECK(!status);
  }
  enough = true;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  settle();
  CHECK(charged() == physical() && charged() == 0);
  return 0;
}

/* End in one way while launches are queued, which the library's meter still measures.
 *
 *   ends WAY    `return`, `exit`, `thread` (exit in another thread), `now` (_exit), `term` (SIGTERM to
 *               itself), `reset` (the primary context), `threads` (main ends before a launching thread)
 *
 * Prints `ready` when the queue is full. The status is 0, or SIGTERM's. */
#include "gpu.h"

#include <pthread.h>
#include <signal.h>

enum { QUEUED = 24 };
static const uint64_t LENGTH_NS = 5000000;
static CUfunction work;
static CUcontext context;

static void fill(void) {
  for (int i = 0; i < QUEUED; i++) MUST(launch_work(work, LENGTH_NS, 0, 0));
}

static void *end_here(void *nothing) {
  exit(0);
  return nothing;
}

/* The driver may refuse launches once the process ends. */
static void *launch_on(void *nothing) {
  cuCtxSetCurrent(context);
  while (launch_work(work, LENGTH_NS, 0, 0) == CUDA_SUCCESS) continue;
  return nothing;
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "return";
  pthread_t thread;
  CUdevice device = open_device();
  MUST(cuCtxGetCurrent(&context));
  work = kernel("work");
  fill();
  puts("ready\t1");
  fflush(stdout);
  if (!strcmp(way, "exit")) exit(0);
  if (!strcmp(way, "now")) _exit(0);
  if (!strcmp(way, "term")) kill(getpid(), SIGTERM);
  if (!strcmp(way, "reset")) MUST(cuDevicePrimaryCtxReset(device));
  if (!strcmp(way, "thread") && pthread_create(&thread, NULL, end_here, NULL) == 0) pthread_join(thread, NULL);
  if (!strcmp(way, "threads") && pthread_create(&thread, NULL, launch_on, NULL) == 0) usleep(20000);
  return 0;
}

/* cancelled WHAT: threads are cancelled at any moment of a driver call, which VGPU_STUB_DELAY_NS makes slow.
 * Afterwards no lock is held, and the charge is the allocated memory. */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocators.h"

#define ROUNDS 60
#define SOON 60 /* seconds; a longer wait is for a lock of a thread that has ended */

static CUcontext context, made;
static CUstream stream;
static CUdeviceptr pointer;
static CUgraphExec exec;

static void contexts(void) {
  OK(cuCtxCreate_v2(&made, 0, 0));
  OK(cuCtxDestroy_v2(made));
}

static void pools(void) {
  OK(cuMemAllocAsync(&pointer, 20 * MIB, stream));
  OK(cuMemFreeAsync(pointer, stream));
  pointer = 0;
  CUmemoryPool pool;
  OK(cuDeviceGetMemPool(&pool, 0));
  OK(cuMemPoolTrimTo(pool, 0));
}

static void graphs(void) {
  OK(cuGraphLaunch(exec, stream));
  OK(cuDeviceGraphMemTrim(0));
}

/* More than the card has left, so that the driver is called again after pauses. */
static void refused(void) {
  CUdeviceptr none;
  CHECK(cuMemAlloc_v2(&none, 40 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static const struct {
  const char *name;
  void (*what)(void);
} ways[] = {{"contexts", contexts}, {"pools", pools}, {"graphs", graphs}, {"refused", refused}};

static void *work(void *what) {
  OK(cuCtxSetCurrent(context));
  for (;; pthread_testcancel()) ((void (*)(void))what)();
  return NULL;
}

static void cancel_one(void (*what)(void), long after_us) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, (void *)what);
  nanosleep(&(struct timespec){.tv_nsec = after_us * 1000}, NULL);
  pthread_cancel(thread);
  pthread_join(thread, NULL);
  if (pointer) OK(cuMemFreeAsync(pointer, stream));
  pointer = 0;
}

static void check(void) {
  CUmemoryPool pool;
  settle();
  OK(cuDeviceGetMemPool(&pool, 0));
  OK(cuMemPoolTrimTo(pool, 0));
  OK(cuDeviceGraphMemTrim(0));
  CHECK(physical() == 0 && charged() == 0);
}

int main(int count, char **arguments) {
  void (*what)(void) = NULL;
  CHECK(count == 2);
  for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
    if (!strcmp(ways[i].name, arguments[1])) what = ways[i].what;
  CHECK(what);
  context = begin(0);
  OK(cuStreamCreate(&stream, 0));
  OK(graph_with(20 * MIB, &exec));
  for (long i = 0; i < ROUNDS; i++) {
    alarm(SOON);
    cancel_one(what, 300 * i % 9000);
    what();
    check();
  }
  return 0;
}

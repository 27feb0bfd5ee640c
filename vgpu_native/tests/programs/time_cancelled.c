/* Threads that are cancelled at any moment of a launch that is measured, while each call of the driver takes
 * time by VGPU_STUB_DELAY_NS. Streams can be destroyed afterwards, and launches wait for nobody. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "allocators.h"

#define ROUNDS 40
#define SOON 60                /* seconds; who takes longer waits for a lock of a thread that has ended */
#define LAUNCH_NS 100000000ULL /* a launch takes no longer, unless it waits for work that never ends */

static CUcontext context;
static CUfunction kernel;
static CUstream streams[2];
static unsigned launches;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Each of another size, and so of a kind that has to be measured, in another stream than the last. */
static void launch(void) {
  unsigned number = launches++;
  OK(cuLaunchKernel(kernel, 1u << number % 30, 1u << number / 30 % 30, 1, 1, 1, 1, 0, streams[number % 2], NULL, NULL));
}

static void *work(void *nothing) {
  OK(cuCtxSetCurrent(context));
  for (;; pthread_testcancel()) launch();
  return nothing;
}

static void cancel_one(long after_us) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  nanosleep(&(struct timespec){.tv_nsec = after_us * 1000}, NULL);
  pthread_cancel(thread);
  pthread_join(thread, NULL);
}

static void make_streams(void) {
  for (int i = 0; i < 2; i++) OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void destroy_streams(void) {
  for (int i = 0; i < 2; i++) OK(cuStreamDestroy(streams[i]));
}

int main(void) {
  CUmodule module;
  context = begin(0);
  OK(cuModuleLoadData(&module, "module"));
  OK(cuModuleGetFunction(&kernel, module, "kernel"));
  for (long i = 0; i < ROUNDS; i++) {
    alarm(SOON);
    make_streams();
    cancel_one(300 * i % 5000);
    destroy_streams();
  }
  make_streams();
  settle();
  usleep(200000); /* so that all has been read that was measured */
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; i++) {
    uint64_t begun = now();
    launch();
    if (now() - begun < least) least = now() - begun;
  }
  CHECK(least < LAUNCH_NS);
  return 0;
}

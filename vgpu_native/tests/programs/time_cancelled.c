/* Threads are cancelled at any moment of a measured launch, while VGPU_STUB_DELAY_NS makes driver calls slow.
 * Afterwards streams can be destroyed, and launches wait for no ended thread. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "allocators.h"

#define ROUNDS 40
#define SOON 60                /* seconds; a longer wait is for a lock of a thread that has ended */
#define LAUNCH_NS 100000000ULL /* a launch that takes longer waits for work that never ends */

static CUcontext context;
static CUfunction kernel;
static CUstream streams[2];
static unsigned launches;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Each has another size, so that its kind must be measured, and another stream than the last. */
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
  usleep(200000); /* so that all samples have been read */
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 5; i++) {
    uint64_t begun = now();
    launch();
    if (now() - begun < least) least = now() - begun;
  }
  CHECK(least < LAUNCH_NS);
  return 0;
}

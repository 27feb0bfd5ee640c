/* The cost of calls: nanoseconds of each, the median of many batches, one line for each.
 *
 *   calls               init, launch, graph launch, cuMemGetInfo, alloc and free
 *   calls begin         only the first of them
 *   calls hold BYTES    attach, hold memory, print "ready", and idle until standard input ends */
#include "gpu.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 32, BATCHES_MIN = 5, BATCHES_MAX = 4001, BYTES = 4096, LIVE_MAX = 10000 };
static const uint64_t MEASURED_NS = 300 * 1000 * 1000;

static CUfunction nothing;
static CUgraphExec graph;

static void launch(void) { MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL)); }
static void launch_graph(void) { MUST(cuGraphLaunch(graph, 0)); }

static void ask(void) {
  size_t left, total;
  MUST(cuMemGetInfo(&left, &total));
}

static void allocate_and_free(void) {
  CUdeviceptr pointer;
  MUST(cuMemAlloc(&pointer, BYTES));
  MUST(cuMemFree(pointer));
}

static int by_size(const void *left, const void *right) {
  uint64_t one = *(const uint64_t *)left, other = *(const uint64_t *)right;
  return (one > other) - (one < other);
}

/* Between batches the device finishes its queue, so that a full queue is not measured. With a limit of time
 * one of 129 short launches is sampled, and takes longer: three of four batches have none. */
static void measure(const char *name, void (*call)(void)) {
  static uint64_t taken[BATCHES_MAX];
  unsigned count = 0;
  uint64_t begun = now();
  while (count < BATCHES_MIN || (count < BATCHES_MAX && now() - begun < MEASURED_NS)) {
    uint64_t start = now();
    for (int i = 0; i < BATCH; i++) call();
    taken[count++] = now() - start;
    MUST(cuCtxSynchronize());
  }
  qsort(taken, count, sizeof *taken, by_size);
  printf("%s\t%.1f\n", name, (double)taken[count / 2] / BATCH);
}

/* Captured, because the function that adds a kernel to a graph has another form since CUDA 12. */
static void make_graph(void) {
  CUgraph made;
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  MUST(cuStreamEndCapture(stream, &made));
  MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
}

static void measure_allocations(void) {
  static const int wanted[] = {0, 1000, LIVE_MAX};
  static CUdeviceptr live[LIVE_MAX];
  int count = 0;
  for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    char name[32];
    for (; count < wanted[i]; count++) MUST(cuMemAlloc(&live[count], BYTES));
    snprintf(name, sizeof name, "alloc+free, %d live", count);
    measure(name, allocate_and_free);
  }
  while (count > 0) MUST(cuMemFree(live[--count]));
}

/* The first calls, which include the initialisation of a preloaded library. */
static void measure_beginning(void) {
  uint64_t begun = now(), ready, last;
  open_device();
  ready = now();
  allocate_and_free();
  last = now();
  printf("init\t%llu\nfirst alloc+free\t%llu\n", (unsigned long long)(ready - begun),
         (unsigned long long)(last - ready));
}

static void *idle(void *nothing) {
  for (;;) pause();
  return nothing;
}

/* A GPU's driver starts threads, and so does the library; the stub does not. Without another thread the C
 * library takes no locks, so the stub alone would be faster than any driver. */
static void be_several(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, idle, NULL) == 0) return;
  fputs("there can be no second thread\n", stderr);
  exit(1);
}

static int hold(size_t bytes) {
  CUdeviceptr pointer;
  char byte;
  open_device();
  MUST(cuMemAlloc(&pointer, bytes));
  puts("ready");
  fflush(stdout);
  while (read(STDIN_FILENO, &byte, 1) > 0) continue;
  return 0;
}

int main(int count, char **arguments) {
  if (count == 3 && strcmp(arguments[1], "hold") == 0) return hold(strtoull(arguments[2], NULL, 0));
  measure_beginning();
  if (count > 1) return 0;
  be_several();
  nothing = kernel("nothing");
  make_graph();
  measure("launch", launch);
  measure("graph launch", launch_graph);
  measure("cuMemGetInfo", ask);
  measure_allocations();
  return 0;
}

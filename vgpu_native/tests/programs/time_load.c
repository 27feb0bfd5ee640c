/* Keep a device busy in one way, and print the share of its time that was used.
 *
 *   time_load WAY SECONDS NANOSECONDS [WARM]
 *
 * A kernel takes NANOSECONDS of the device; VGPU_STUB_GRID_NS must have the same value. Ways: `loop` waits
 * for each kernel, `sparse` sleeps after each, `queue` never waits, `streams` never waits and uses four
 * streams, `threads` has four threads that loop in streams of their own, `graph` launches graphs of ten
 * kernels and waits for each, `mixed` queues kernels of very different length, `ex` and `cooperative` queue
 * other launches, `ended-streams` and `ended-contexts` queue a few kernels in each of many that are created
 * and destroyed, `unlike` queues kernels of one kind of which some take a thousand times as long, `fork`
 * queues in a child of a process that did so before. After WARM seconds (1) that do not count, prints the
 * percent of SECONDS for which the device was kept busy. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(call) must(call, #call)

static void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: %d\n", call, (int)result);
  exit(1);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

enum { STREAMS = 4, GRAPH_KERNELS = 10 };

static CUfunction kernel;
static CUstream streams[STREAMS];
static CUgraphExec graph;
static CUcontext context;
static const char *way;
static uint64_t length;   /* of a kernel, for a grid of one block */
static uint64_t launched; /* nanoseconds of the device */
static uint64_t until;
static unsigned turn;

static void launch(unsigned blocks, CUstream stream) {
  MUST(cuLaunchKernel(kernel, blocks, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  __atomic_fetch_add(&launched, blocks * length, __ATOMIC_RELAXED);
}

static void launch_ex(CUstream stream) {
  CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
                           .blockDimZ = 1, .hStream = stream};
  MUST(cuLaunchKernelEx(&config, kernel, NULL, NULL));
  launched += length;
}

/* A function of the stub sets the length, independent of grids. */
static void unlike(CUstream stream) {
  static void (*set_ns)(uint64_t);
  if (!set_ns) *(void **)&set_ns = dlsym(RTLD_DEFAULT, "vgpu_stub_kernel_ns");
  uint64_t factor = turn++ % 2000 < 1900 ? 1 : 1000;
  set_ns(length * factor);
  launch(1, stream);
  launched += length * (factor - 1);
}

static void in_new_stream(void) {
  CUstream stream;
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 10; i++) launch(1, stream);
  MUST(cuStreamDestroy(stream));
}

static void in_new_context(void) {
  CUcontext made;
  CUctxCreateParams parameters = {0};
  MUST(cuCtxCreate(&made, &parameters, 0, 0));
  for (int i = 0; i < 10; i++) launch(1, NULL);
  MUST(cuCtxDestroy(made));
  MUST(cuCtxSetCurrent(context));
}

static void step(CUstream stream) {
  if (!strcmp(way, "graph")) {
    MUST(cuGraphLaunch(graph, stream));
    launched += GRAPH_KERNELS * length;
    MUST(cuStreamSynchronize(stream));
  } else if (!strcmp(way, "ex")) {
    launch_ex(stream);
  } else if (!strcmp(way, "cooperative")) {
    MUST(cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL));
    launched += length;
  } else if (!strcmp(way, "mixed")) {
    launch(turn++ % 50 ? 1 : 200, stream);
  } else if (!strcmp(way, "unlike")) {
    unlike(stream);
  } else if (!strcmp(way, "ended-streams")) {
    in_new_stream();
  } else if (!strcmp(way, "ended-contexts")) {
    in_new_context();
  } else if (!strcmp(way, "streams")) {
    launch(1, streams[turn++ % STREAMS]);
  } else {
    launch(1, stream);
  }
  if (!strcmp(way, "loop") || !strcmp(way, "threads") || !strcmp(way, "sparse")) MUST(cuStreamSynchronize(stream));
  if (!strcmp(way, "sparse")) usleep(300);
}

static void *work(void *stream) {
  MUST(cuCtxSetCurrent(context));
  while (now() < __atomic_load_n(&until, __ATOMIC_RELAXED)) step(stream);
  return NULL;
}

static void for_seconds(double seconds) {
  pthread_t threads[STREAMS];
  until = now() + (uint64_t)(seconds * 1e9);
  if (strcmp(way, "threads")) {
    work(streams[0]);
    return;
  }
  for (int i = 0; i < STREAMS; i++) pthread_create(&threads[i], NULL, work, streams[i]);
  for (int i = 0; i < STREAMS; i++) pthread_join(threads[i], NULL);
}

static void make_graph(void) {
  CUgraph made;
  MUST(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < GRAPH_KERNELS; i++) launch(1, streams[0]);
  MUST(cuStreamEndCapture(streams[0], &made));
  MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
}

static void open_device(void) {
  CUdevice device;
  CUmodule module;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuModuleLoadData(&module, "nothing"));
  MUST(cuModuleGetFunction(&kernel, module, "nothing"));
  for (int i = 0; i < STREAMS; i++) MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

/* Continue as a child, which may use the driver again; the parent ends with the child's status. */
static void become_child(void) {
  int status;
  pid_t child = fork();
  if (!child) {
    open_device();
    return;
  }
  waitpid(child, &status, 0);
  exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int main(int count, char **arguments) {
  if (count < 4) return fprintf(stderr, "usage: time_load WAY SECONDS NANOSECONDS [WARM]\n"), 2;
  way = arguments[1];
  length = strtoull(arguments[3], NULL, 10);
  open_device();
  if (!strcmp(way, "graph")) make_graph();
  for_seconds(count > 4 ? atof(arguments[4]) : 1);
  if (!strcmp(way, "fork")) {
    become_child();
    for_seconds(1);
  }
  uint64_t before = launched, begun = now();
  for_seconds(atof(arguments[2]));
  printf("%.2f\n", 100.0 * (double)(launched - before) / (double)(now() - begun));
  return 0;
}

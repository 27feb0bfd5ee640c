/* Keep the device as busy as possible with kernels of some lengths in turn, and count them.
 *
 *   share SECONDS WARM WAY NANOSECONDS...
 *
 * WAY is `queue` (a full queue), `graph` (each round of lengths is one graph launch), `green` (a stream of a
 * green context with the fewest multiprocessors), `async` (each round has memory of a pool while it runs), or
 * `loop` (waits for each round). After WARM seconds it
 * prints for the next SECONDS: `rounds`, `elapsed_ns`, and for the whole run `kernel_ns`, the mean time of a
 * kernel by the timer in it, 0 if there is none. The status is 77 if the driver lacks the way. */
#include "gpu.h"

/* Enough work is in flight that a delay of the program by some milliseconds leaves no gap. */
enum { FLIGHT_MAX = 8, FLIGHT_LEAST = 3, LENGTHS_MAX = 16, BATCH_MAX = 512, ABSENT = 77 };
static const uint64_t BATCH_NS = 2000000, FLIGHT_NS = 16000000;

static uint64_t lengths[LENGTHS_MAX];
static int kinds;
static CUfunction work;
static CUdeviceptr sums;
static CUstream stream;
static CUgraphExec graph;
static const char *way;

static void make_graph(void) {
  CUgraph made;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (int i = 0; i < kinds; i++) MUST(launch_work(work, lengths[i], sums, stream));
  MUST(cuStreamEndCapture(stream, &made));
  MUST(cuGraphInstantiateWithFlags(&graph, made, 0));
}

/* Functions of CUDA 12.4 and 12.5, which are looked up. */
static void open_green(CUdevice device) {
  CUresult (*resource_of)(CUdevice, CUdevResource *, CUdevResourceType) = newer("cuDeviceGetDevResource");
  CUresult (*split)(CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned, unsigned) =
      newer("cuDevSmResourceSplitByCount");
  CUresult (*describe)(CUdevResourceDesc *, CUdevResource *, unsigned) = newer("cuDevResourceGenerateDesc");
  CUresult (*create)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned) = newer("cuGreenCtxCreate");
  CUresult (*context_of)(CUcontext *, CUgreenCtx) = newer("cuCtxFromGreenCtx");
  CUdevResource whole, part;
  CUdevResourceDesc wanted;
  CUgreenCtx green;
  CUcontext context;
  unsigned count = 1;
  if (!resource_of || !split || !describe || !create || !context_of) exit(ABSENT);
  MUST(resource_of(device, &whole, CU_DEV_RESOURCE_TYPE_SM));
  MUST(split(&part, &count, &whole, NULL, 0, 1));
  MUST(describe(&wanted, &part, 1));
  MUST(create(&green, wanted, device, CU_GREEN_CTX_DEFAULT_STREAM));
  MUST(context_of(&context, green));
  MUST(cuCtxSetCurrent(context));
}

static void launch_round(void) {
  if (graph) {
    MUST(cuGraphLaunch(graph, stream));
    return;
  }
  CUdeviceptr memory = 0;
  int async = !strcmp(way, "async");
  if (async) MUST(cuMemAllocAsync(&memory, 1 * MIB, stream));
  for (int i = 0; i < kinds; i++) MUST(launch_work(work, lengths[i], sums, stream));
  if (async) MUST(cuMemFreeAsync(memory, stream));
  if (!strcmp(way, "loop")) MUST(cuStreamSynchronize(stream));
}

static unsigned within(uint64_t number, unsigned least, unsigned most) {
  return number < least ? least : number > most ? most : (unsigned)number;
}

/* Batches in flight, so that the device never waits for the next launch. */
static void measure(double seconds, double warm) {
  CUevent events[FLIGHT_MAX];
  uint64_t round = 1;
  for (int i = 0; i < kinds; i++) round += lengths[i];
  unsigned batch = within(BATCH_NS / round, 1, BATCH_MAX);
  unsigned flight = within(FLIGHT_NS / (batch * round), FLIGHT_LEAST, FLIGHT_MAX);
  for (unsigned i = 0; i < flight; i++)
    MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  uint64_t started = now(), begun = 0, time = started, counted = 0;
  for (uint64_t number = 0;; number++) {
    if (number >= flight) {
      MUST(cuEventSynchronize(events[number % flight]));
      time = now();
      if (begun) counted++;
      else if (time - started >= (uint64_t)(warm * 1e9)) begun = time;
      if (begun && time - begun >= (uint64_t)(seconds * 1e9)) break;
    }
    for (unsigned i = 0; i < batch; i++) launch_round();
    MUST(cuEventRecord(events[number % flight], stream));
  }
  printf("rounds\t%llu\nelapsed_ns\t%llu\n", (unsigned long long)(counted * batch), (unsigned long long)(time - begun));
}

int main(int count, char **arguments) {
  if (count < 5) return fprintf(stderr, "usage: share SECONDS WARM WAY NANOSECONDS...\n"), 2;
  way = arguments[3];
  for (kinds = 0; kinds < count - 4 && kinds < LENGTHS_MAX; kinds++) lengths[kinds] = strtoull(arguments[4 + kinds], NULL, 10);
  CUdevice device = open_device();
  if (!strcmp(way, "green")) open_green(device);
  uint64_t read[2] = {0};
  work = kernel("work");
  MUST(cuMemAlloc(&sums, 64));
  MUST(cuMemsetD8(sums, 0, 64));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuCtxSynchronize());
  if (!strcmp(way, "graph")) make_graph();
  measure(atof(arguments[1]), atof(arguments[2]));
  MUST(cuStreamSynchronize(stream));
  MUST(cuMemcpyDtoH(read, sums, sizeof read));
  printf("kernel_ns\t%.0f\n", read[1] ? (double)read[0] / (double)read[1] : 0);
  return 0;
}

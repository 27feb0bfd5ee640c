/* Two events without work between them are as far apart as the events take. A launch between them is longer by
 * that time, which matters for kernels of some microseconds. So an event follows the second one of some launches,
 * without work between them. The time of events is the mean of the shortest of those distances, because others
 * include a delay of the process on an idle device. */
#include "time/events/event_times.h"

#include "layout.h"

#define PAIRS 16     /* distances of one measurement */
#define OFTEN 32     /* launches that are all followed, at the start */
#define SELDOM 64    /* later one in so many is */
#define TICK_NS 600  /* a little more than the resolution of an event */
#define MOST_NS 10000 /* no event takes longer */

static struct event_cost {
  uint64_t ns;    /* what an event takes */
  uint64_t least; /* of the distances since the last measurement */
  uint64_t sum;   /* of those that are near the least */
  uint32_t near, pairs, launches;
} costs[VGPU_DEVICES_MAX];

bool vgpu_event_cost_due(int entry) {
  uint32_t launches = __atomic_fetch_add(&costs[entry].launches, 1, __ATOMIC_RELAXED);
  return launches < OFTEN || launches % SELDOM == 0;
}

static double elapsed_ns(CUevent from, CUevent to) {
  float ms = 0;
  return REAL(cuEventElapsedTime)(&ms, from, to) == CUDA_SUCCESS ? (double)ms * 1e6 : -1;
}

/* Until the first measurement is complete, what there is of it applies. */
static void learn(struct event_cost *cost, uint64_t ns) {
  if (ns > MOST_NS) ns = MOST_NS;
  if (!cost->near || ns < cost->least) {
    bool keep = cost->near && cost->least - ns < TICK_NS;
    cost->least = ns;
    if (!keep) cost->sum = cost->near = 0;
  }
  if (ns < cost->least + TICK_NS) {
    cost->sum += ns;
    cost->near++;
  }
  bool complete = ++cost->pairs % PAIRS == 0;
  if (complete || cost->pairs < PAIRS) cost->ns = cost->sum / cost->near;
  if (complete) cost->near = 0;
}

/* An idle device performs the first event while the process prepares the launch. */
static double without_idle(double ns, uint64_t idle, uint64_t event_ns) {
  return idle > event_ns ? ns - (double)(idle - event_ns) : ns;
}

/* Only one thread at a time calls this. */
uint64_t vgpu_event_busy_ns(const struct vgpu_event_span *span, int entry) {
  struct event_cost *cost = &costs[entry];
  double distance = span->after ? elapsed_ns(span->end, span->after) : -1;
  if (distance >= 0) learn(cost, (uint64_t)distance);
  double whole = elapsed_ns(span->begin, span->end);
  if (whole < 0) return 0;
  double ns = without_idle(whole, span->idle, cost->ns);
  if (span->before) {
    bool ended_before = REAL(cuEventQuery)(span->before) == CUDA_SUCCESS;
    double after = ended_before ? elapsed_ns(span->before, span->end) : 0;
    if (after < ns) ns = after;
  }
  ns -= (double)cost->ns;
  return ns > 1 ? (uint64_t)ns : 1;
}

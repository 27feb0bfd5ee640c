/* The creation of the first context adds this process to the list. If it adds one process, that is this one. If several
 * containers create contexts at once, each takes and frees memory of a random size: the process whose memory follows
 * is this one. Containers share no lock. */
#include "contexts/own_process.h"

#include <unistd.h>

#include "memory/granularity/granularity.h"
#include "util/clock.h"
#include "util/fork_handlers.h"
#include "vgpu.h"

/* NVML takes about a millisecond for a list. */
enum { PASSES_MAX = 8, SEARCHES_MAX = 4, PAGES_MAX = 8 };
#define SEARCH_NS 20000000ULL
#define PAGE (2ULL << 20)

static unsigned own;      /* 0: unknown */
static unsigned searches; /* in which memory was taken */
static bool watched;

static void forget(void) { own = searches = 0; }

unsigned vgpu_own_pid(void) { return __atomic_load_n(&own, __ATOMIC_ACQUIRE); }

/* The number of new processes, and one of them. */
static unsigned count_new(const struct vgpu_processes *before, const struct vgpu_processes *after, unsigned *pid) {
  unsigned count = 0;
  for (unsigned i = 0; i < after->count; i++) {
    if (vgpu_processes_have(before, after->at[i].pid)) continue;
    *pid = after->at[i].pid;
    count++;
  }
  return count;
}

uint64_t vgpu_least_new(const struct vgpu_processes *before, const struct vgpu_processes *after) {
  uint64_t least = 0;
  for (unsigned i = 0; i < after->count; i++) {
    uint64_t bytes = after->at[i].bytes;
    if (!vgpu_processes_have(before, after->at[i].pid) && (!least || bytes < least)) least = bytes;
  }
  return least;
}

/* By the lists alone, if the context is the first. 0: several processes are new, or none. */
static unsigned only_new(const struct vgpu_processes *before, const struct vgpu_processes *after, unsigned *count) {
  unsigned pid = 0, self = (unsigned)getpid();
  *count = count_new(before, after, &pid);
  if (vgpu_processes_have(after, self) && !vgpu_processes_have(before, self)) return self;
  return *count == 1 ? pid : 0;
}

/* The only process whose memory grew by `bytes`, and then fell by as much. 0: none, or several. */
static unsigned follower(const struct vgpu_processes lists[3], uint64_t bytes) {
  unsigned pid = 0, count = 0;
  for (unsigned i = 0; i < lists[1].count; i++) {
    const struct vgpu_process_figure *taken = &lists[1].at[i];
    uint64_t before = vgpu_processes_bytes(&lists[0], taken->pid), after = vgpu_processes_bytes(&lists[2], taken->pid);
    if (!before || before != after || taken->bytes != before + bytes) continue;
    pid = taken->pid;
    count++;
  }
  return count == 1 ? pid : 0;
}

/* Take and free memory once. */
static unsigned probe(CUdevice device, uint64_t bytes, uint64_t granular) {
  static struct vgpu_processes lists[3]; /* under the lock of contexts */
  CUdeviceptr pointer;
  if (!vgpu_processes_read(device, &lists[0]) || REAL(cuMemAlloc_v2)(&pointer, bytes) != CUDA_SUCCESS) return 0;
  bool read = vgpu_processes_read(device, &lists[1]);
  if (REAL(cuMemFree_v2)(pointer) != CUDA_SUCCESS || !read || !vgpu_processes_read(device, &lists[2])) return 0;
  return follower(lists, granular);
}

static unsigned random_pages(unsigned most) {
  uint64_t word = vgpu_monotonic() ^ (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)&word;
  word = (word ^ word >> 33) * 0xff51afd7ed558ccdULL;
  return 1 + (unsigned)((word >> 33) % most);
}

/* The probes' memory is reserved within the limit. */
static unsigned search(CUdevice device, int entry) {
  struct vgpu_granularity granularity = *vgpu_granularity(VGPU_LINEAR, entry);
  unsigned most = PAGES_MAX, pid = 0;
  while (most && !vgpu_reserve(entry, vgpu_granular(&granularity, most * PAGE))) most /= 2;
  if (!most) return 0;
  uint64_t begin = vgpu_monotonic();
  for (unsigned i = 0; i < PASSES_MAX && !pid && vgpu_monotonic() - begin < SEARCH_NS; i++) {
    uint64_t bytes = random_pages(most) * PAGE;
    pid = probe(device, bytes, vgpu_granular(&granularity, bytes));
  }
  vgpu_release(entry, vgpu_granular(&granularity, most * PAGE));
  return pid;
}

void vgpu_own_pid_find(CUdevice device, int entry, bool first, const struct vgpu_processes *before,
                       const struct vgpu_processes *after) {
  vgpu_reset_in_children(&watched, forget);
  unsigned pid = vgpu_own_pid();
  if (pid && vgpu_processes_have(after, pid)) return;
  unsigned candidates = after->count;
  pid = first ? only_new(before, after, &candidates) : 0;
  if (!pid && candidates && searches < SEARCHES_MAX && ++searches) pid = search(device, entry);
  __atomic_store_n(&own, pid, __ATOMIC_RELEASE);
}

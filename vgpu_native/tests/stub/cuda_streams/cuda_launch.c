/* Kernels: they compute nothing, but take the card's time, one after the other. */
#include "cuda_stub.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* Kernels that a process may have queued on a card before a launch has to wait. */
#define QUEUE 1024

static struct { uint64_t end[QUEUE]; unsigned next; } queue[STUB_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t kernel_ns, grid_ns;

/* The process is delayed before some launches, as on a busy machine. */
#define STALLED 17
static uint64_t stall_ns;
static bool blocking; /* a launch returns when its kernel has ended */
static _Atomic unsigned launches;

void stub_lock_queue(void) { pthread_mutex_lock(&lock); }
void stub_unlock_queue(void) { pthread_mutex_unlock(&lock); }

/* Read once, when the library is loaded, because a launch must not read the environment. */
__attribute__((constructor)) static void read_environment(void)
{
  kernel_ns = stub_setting("VGPU_STUB_KERNEL_NS", 0);
  grid_ns = stub_setting("VGPU_STUB_GRID_NS", 0);
  stall_ns = stub_setting("VGPU_STUB_STALL_NS", 0);
  blocking = stub_setting("CUDA_LAUNCH_BLOCKING", 0);
}

EXPORT void vgpu_stub_kernel_ns(uint64_t ns)
{
  grid_ns = 0;
  kernel_ns = ns;
}

uint64_t stub_kernel_time(unsigned grid_x)
{
  return grid_ns ? grid_ns * grid_x : kernel_ns;
}

void stub_wait_until(uint64_t when)
{
  struct timespec at = {(time_t)(when / 1000000000u), (long)(when % 1000000000u)};
  if (when <= stub_now()) return;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
}

static void stall(void)
{
  if (stall_ns && ++launches % STALLED == 0) stub_wait_until(stub_now() + stall_ns);
}

/* Queue work of a stream: it begins when the stream's earlier work and the card allow it. */
static uint64_t enqueue(int device, uint64_t after, uint64_t ns)
{
  pthread_mutex_lock(&lock);
  unsigned at = queue[device].next++ % QUEUE;
  uint64_t oldest = queue[device].end[at], now = stub_now();
  uint64_t end = stub_run(device, after > now ? after : now, ns);
  queue[device].end[at] = end;
  pthread_mutex_unlock(&lock);
  stub_wait_until(oldest);
  return end;
}

void stub_extend(_Atomic uint64_t *last, uint64_t end)
{
  uint64_t seen = atomic_load(last);
  while (seen < end && !atomic_compare_exchange_weak(last, &seen, end)) continue;
}

/* Work of a stream follows its earlier work; the legacy stream follows all streams of its context. */
CUresult stub_launch(CUstream handle, unsigned kernels, uint64_t ns)
{
  if (!stub_context()) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream stream = stub_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  CUcontext now = stream->context;
  if (stub_capturing(stream)) {
    for (unsigned i = 0; i < kernels; i++) stub_graph_kernel(stub_capture_graph(stream), ns);
    return CUDA_SUCCESS;
  }
  if (!ns || !kernels) return CUDA_SUCCESS;
  stall();
  for (unsigned i = 0; i < kernels; i++) {
    uint64_t end = enqueue(now->device, stub_stream_end(stream), ns);
    stub_extend(&stream->last_end, end);
    stub_extend(&now->last_end, end);
  }
  if (blocking) stub_wait_until(stub_stream_end(stream));
  return CUDA_SUCCESS;
}

CUresult stub_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
  (void)by, (void)bz, (void)shared, (void)params, (void)extra;
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  if (!gx || !gy || !gz || !bx) return CUDA_ERROR_INVALID_VALUE;
  stub_function_load(f);
  return stub_launch(stream, 1, stub_kernel_time(gx));
}

CUresult stub_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
  (void)params, (void)extra;
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  stub_function_load(f);
  return stub_launch(config->hStream, 1, stub_kernel_time(config->gridDimX));
}

CUresult stub_cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params)
{
  return stub_cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

CUresult stub_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *each, unsigned count, unsigned flags)
{
  (void)flags;
  for (unsigned i = 0; i < count; i++) {
    CUresult result = stub_launch(each[i].hStream, 1, stub_kernel_time(each[i].gridDimX));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult stub_cuLaunch(CUfunction f) { return f ? stub_launch(NULL, 1, stub_kernel_time(1)) : CUDA_ERROR_INVALID_HANDLE; }

CUresult stub_cuLaunchGrid(CUfunction f, int width, int height)
{
  return f && width > 0 && height > 0 ? stub_launch(NULL, 1, stub_kernel_time((unsigned)width)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
  return f && width > 0 && height > 0 ? stub_launch(stream, 1, stub_kernel_time((unsigned)width)) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT uint64_t vgpu_stub_used(int device) { return stub_used(0, device); }
EXPORT uint64_t vgpu_stub_used_by(pid_t pid, int device) { return stub_used(pid, device); }
EXPORT uint64_t vgpu_stub_busy_ns(int device) { return stub_busy_ns(0, device); }
EXPORT void vgpu_stub_xid(int device, unsigned xid) { stub_xid(device, xid); }

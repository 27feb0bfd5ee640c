/* Hooks of launches. Each first reads whether any limit of time is set. */
#include "intercept/nested_calls.h"
#include "memory/graph_memory.h"
#include "time/launch_pacing.h"

/* Launches of the same code on grids of about the same size have the same cost. */
static uint64_t kind_of(CUfunction function, uint64_t blocks) {
  return (uint64_t)(uintptr_t)function << 6 ^ (uint64_t)(63 - __builtin_clzll(blocks | 1));
}

static uint64_t blocks(unsigned x, unsigned y, unsigned z) { return (uint64_t)x * y * z; }

static uint64_t kind_of_config(const CUlaunchConfig *config, CUfunction function) {
  return config ? kind_of(function, blocks(config->gridDimX, config->gridDimY, config->gridDimZ)) : 0;
}

static uint64_t kind_of_list(const CUDA_LAUNCH_PARAMS *list, unsigned count) {
  return list && count ? kind_of(list->function, blocks(list->gridDimX, list->gridDimY, list->gridDimZ)) : 0;
}

static uint64_t kind_of_graph(CUgraphExec graph) { return (uint64_t)(uintptr_t)graph << 6; }

/* Define `paced_NAME`, which charges a launch and then calls the driver with the same arguments. */
#define PACED(name, parameters, arguments, kind, function, stream, per_thread)                        \
  static __attribute__((noinline)) CUresult paced_##name parameters {                                 \
    struct vgpu_launch launch;                                                                        \
    if (!vgpu_launch_begin(&launch, kind, function, stream, per_thread)) return REAL(name) arguments; \
    return vgpu_launch_end(&launch, REAL(name) arguments);                                            \
  }

/* The driver's function if it is known already. */
#define KNOWN(name) ((__typeof__(&name))__atomic_load_n(&vgpu_reals[VGPU_FN_##name], __ATOMIC_ACQUIRE))

/* Without a limit of time a launch is a load and a jump, and the driver returns to the program. All other
 * work is in another function. */
#define ONWARD(name, arguments)                     \
  __typeof__(&name) real = KNOWN(name);             \
  if (real && !vgpu_paced()) return real arguments; \
  return paced_##name arguments

#define LAUNCH(name, parameters, arguments, kind, function, stream, per_thread) \
  PACED(name, parameters, arguments, kind, function, stream, per_thread)        \
  EXPORT CUresult CUDAAPI name parameters { ONWARD(name, arguments); }

#define KERNEL(name, per_thread)                                                                     \
  LAUNCH(name,                                                                                       \
         (CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX, \
          unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream,         \
          void **kernelParams, void **extra),                                                        \
         (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, \
          kernelParams, extra),                                                                      \
         kind_of(f, blocks(gridDimX, gridDimY, gridDimZ)), f, hStream, per_thread)

#define COOPERATIVE(name, per_thread)                                                                \
  LAUNCH(name,                                                                                       \
         (CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX, \
          unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream,         \
          void **kernelParams),                                                                      \
         (f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, \
          kernelParams),                                                                             \
         kind_of(f, blocks(gridDimX, gridDimY, gridDimZ)), f, hStream, per_thread)

#define CONFIGURED(name, per_thread)                                                                   \
  LAUNCH(name, (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),        \
         (config, f, kernelParams, extra), kind_of_config(config, f), f,                               \
         config ? config->hStream : NULL, per_thread)

/* The graph's memory is charged around the whole launch, so that a waiting launch is charged completely. */
#define GRAPH(name, per_thread)                                                                 \
  PACED(name, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream),                \
        kind_of_graph(hGraphExec), NULL, hStream, per_thread)                                       \
  EXPORT CUresult CUDAAPI name(CUgraphExec hGraphExec, CUstream hStream) {                      \
    if (vgpu_graphs_have_memory()) return vgpu_graph_launch(paced_##name, hGraphExec, hStream); \
    ONWARD(name, (hGraphExec, hStream));                                                        \
  }

KERNEL(cuLaunchKernel, false)
KERNEL(cuLaunchKernel_ptsz, true)
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
CONFIGURED(cuLaunchKernelEx, false)
CONFIGURED(cuLaunchKernelEx_ptsz, true)
GRAPH(cuGraphLaunch, false)
GRAPH(cuGraphLaunch_ptsz, true)

/* Launches of CUDA 3. Their grid is a setting of the function. */
LAUNCH(cuLaunch, (CUfunction f), (f), kind_of(f, 1), f, NULL, false)
LAUNCH(cuLaunchGrid, (CUfunction f, int width, int height), (f, width, height),
       kind_of(f, blocks((unsigned)width, (unsigned)height, 1)), f, NULL, false)
LAUNCH(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream hStream), (f, width, height, hStream),
       kind_of(f, blocks((unsigned)width, (unsigned)height, 1)), f, hStream, false)

/* One kernel on each of several devices. All are charged like the first one, whose device is paced,
 * because the others wait for it. */
LAUNCH(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags),
       (list, count, flags), kind_of_list(list, count), list && count ? list->function : NULL,
       list && count ? list->hStream : NULL, false)

/* Hooks of what keeps a device busy. Each begins with a look whether any limit of time is set. */
#include "graphs.h"
#include "pace.h"

/* Launches cost alike that run the same code on grids of about the same size. */
static uint64_t kind_of(CUfunction function, uint64_t blocks) {
  return (uint64_t)(uintptr_t)function << 6 ^ (uint64_t)(63 - __builtin_clzll(blocks | 1));
}

static uint64_t blocks(unsigned x, unsigned y, unsigned z) { return (uint64_t)x * y * z; }

/* `call` is the driver's function with the hook's arguments. */
#define LAUNCH(call, kind, stream, per_thread)                                          \
  if (!vgpu_paced()) return call;                                                       \
  struct vgpu_launch launch;                                                            \
  if (!vgpu_launch_begin(&launch, kind, stream, per_thread)) return call;               \
  return vgpu_launch_end(&launch, call)

#define KERNEL(name, per_thread)                                                                          \
  EXPORT CUresult CUDAAPI name(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,                \
                               unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,     \
                               unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,     \
                               void **kernelParams, void **extra) {                                       \
    LAUNCH(REAL(name)(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,   \
                      hStream, kernelParams, extra),                                                      \
           kind_of(f, blocks(gridDimX, gridDimY, gridDimZ)), hStream, per_thread);                        \
  }

#define COOPERATIVE(name, per_thread)                                                                     \
  EXPORT CUresult CUDAAPI name(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,                \
                               unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,     \
                               unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,     \
                               void **kernelParams) {                                                     \
    LAUNCH(REAL(name)(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,   \
                      hStream, kernelParams),                                                             \
           kind_of(f, blocks(gridDimX, gridDimY, gridDimZ)), hStream, per_thread);                        \
  }

#define CONFIGURED(name, per_thread)                                                                      \
  EXPORT CUresult CUDAAPI name(const CUlaunchConfig *config, CUfunction f, void **kernelParams,           \
                               void **extra) {                                                            \
    if (!config) return REAL(name)(config, f, kernelParams, extra);                                       \
    LAUNCH(REAL(name)(config, f, kernelParams, extra),                                                    \
           kind_of(f, blocks(config->gridDimX, config->gridDimY, config->gridDimZ)), config->hStream,     \
           per_thread);                                                                                   \
  }

/* Memory of the graph's own is charged around all of it, so that it waits with nothing half charged. */
#define GRAPH(name, per_thread)                                                                           \
  static CUresult paced_##name(CUgraphExec hGraphExec, CUstream hStream) {                                \
    LAUNCH(REAL(name)(hGraphExec, hStream), (uint64_t)(uintptr_t)hGraphExec << 6, hStream, per_thread);   \
  }                                                                                                       \
  EXPORT CUresult CUDAAPI name(CUgraphExec hGraphExec, CUstream hStream) {                                \
    return vgpu_graph_launch(paced_##name, hGraphExec, hStream);                                          \
  }

KERNEL(cuLaunchKernel, false)
KERNEL(cuLaunchKernel_ptsz, true)
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
CONFIGURED(cuLaunchKernelEx, false)
CONFIGURED(cuLaunchKernelEx_ptsz, true)
GRAPH(cuGraphLaunch, false)
GRAPH(cuGraphLaunch_ptsz, true)

/* Launches of CUDA 3, whose grid was a setting of the function. */
EXPORT CUresult CUDAAPI cuLaunch(CUfunction f) {
  LAUNCH(REAL(cuLaunch)(f), kind_of(f, 1), NULL, false);
}

EXPORT CUresult CUDAAPI cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  LAUNCH(REAL(cuLaunchGrid)(f, grid_width, grid_height),
         kind_of(f, blocks((unsigned)grid_width, (unsigned)grid_height, 1)), NULL, false);
}

EXPORT CUresult CUDAAPI cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  LAUNCH(REAL(cuLaunchGridAsync)(f, grid_width, grid_height, hStream),
         kind_of(f, blocks((unsigned)grid_width, (unsigned)grid_height, 1)), hStream, false);
}

/* One kernel on each of several devices. All are charged as the first one, whose device is paced: the
 * others wait for it. */
EXPORT CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
                                                             unsigned int numDevices, unsigned int flags) {
  if (!launchParamsList || !numDevices)
    return REAL(cuLaunchCooperativeKernelMultiDevice)(launchParamsList, numDevices, flags);
  const CUDA_LAUNCH_PARAMS *first = launchParamsList;
  LAUNCH(REAL(cuLaunchCooperativeKernelMultiDevice)(launchParamsList, numDevices, flags),
         kind_of(first->function, blocks(first->gridDimX, first->gridDimY, first->gridDimZ)), first->hStream,
         false);
}

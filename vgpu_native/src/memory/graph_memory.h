/* Graph memory. The driver allocates it when a graph is first launched or uploaded, and keeps it for
 * the next launch. The memory that it keeps of a device is charged, and read again after each such
 * call. */
#pragma once

#include "driver.h"

/* Whether graphs of this process ever had memory. */
extern bool vgpu_graphs_had_memory;
static inline bool vgpu_graphs_have_memory(void) {
  return __atomic_load_n(&vgpu_graphs_had_memory, __ATOMIC_RELAXED);
}

/* Call `launch` while the memory that the graph may take is charged, or return that memory is exhausted.
 * For cuGraphLaunch and cuGraphUpload. */
CUresult vgpu_graph_launch(CUresult (*launch)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream);

/* Read again how much memory graphs keep of all devices, and charge it. */
void vgpu_graphs_update_charges(void);

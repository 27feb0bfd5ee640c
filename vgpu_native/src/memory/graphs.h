/* Memory that graphs allocate: the driver gives it when a graph is first launched or uploaded, and
 * keeps it for the next launch. What it keeps of a device is charged, read anew after each such call. */
#pragma once

#include "driver.h"

/* Whether graphs of this process ever had memory. */
extern bool vgpu_graphs_had_memory;
static inline bool vgpu_graphs_have_memory(void) { return __atomic_load_n(&vgpu_graphs_had_memory, __ATOMIC_RELAXED); }

/* Call `launch` with the memory that the graph may take charged meanwhile; or answer that there is
 * none left. For cuGraphLaunch and cuGraphUpload. */
CUresult vgpu_graph_launch(CUresult (*launch)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream);

/* Read anew what graphs keep of all devices. */
void vgpu_graphs_update_charges(void);

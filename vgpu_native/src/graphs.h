/* Memory that graphs allocate: the driver gives it when a graph is first launched or uploaded, and
 * keeps it for the next launch. What it keeps of a device is charged, read anew after each such call. */
#pragma once

#include "driver.h"

/* What is held for the time of a launch; nothing for a graph without memory of its own. */
struct vgpu_graph_hold {
  struct vgpu_graph_need *need;
  uint64_t held[VGPU_DEVICES_MAX];
};

/* Around cuGraphLaunch and cuGraphUpload, inside a hook. False: out of memory. A graph without memory
 * costs a load where the process has no other, else a look-up. */
bool vgpu_graph_before(struct vgpu_graph_hold *hold, CUgraphExec exec);
void vgpu_graph_after(struct vgpu_graph_hold *hold);

/* Read anew what graphs keep of all devices. */
void vgpu_graphs_settle(void);

/* Whether graphs of this process ever had memory: a load. */
bool vgpu_graphs_any(void);

/* What a graph needs. */
#pragma once

#include "driver.h"
#include "vgpu.h"

/* What a graph may take of each device; what graphs kept of it after its last launch that was made, and
 * which launch of any graph there that was. */
struct graph_need {
  uint64_t bytes[VGPU_DEVICES_MAX + 1]; /* one more, for devices that the container was not given */
  uint64_t kept[VGPU_DEVICES_MAX];
  uint64_t launch_number[VGPU_DEVICES_MAX];
  CUdevice device[VGPU_DEVICES_MAX]; /* of those that it takes memory of */
};

/* What a graph needs, to be freed; NULL if it allocates nothing. False: there is no memory to tell. */
bool vgpu_graph_need(CUgraph graph, struct graph_need **need);

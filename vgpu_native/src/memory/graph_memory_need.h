/* The memory that a graph needs. */
#pragma once

#include "driver.h"
#include "vgpu.h"

/* The bytes that a graph may take of each device; the bytes that graphs kept of the device after the
 * last launch of this graph; and the number of that launch among all launches on the device. */
struct graph_need {
  uint64_t bytes[VGPU_DEVICES_MAX + 1]; /* the last for devices that the container was not given */
  uint64_t kept[VGPU_DEVICES_MAX];
  uint64_t launch_number[VGPU_DEVICES_MAX];
  CUdevice device[VGPU_DEVICES_MAX]; /* of the entries that it takes memory of */
};

/* Compute the need of a graph, which the caller frees; NULL if it allocates nothing. False: there is no
 * memory to compute it. */
bool vgpu_graph_need(CUgraph graph, struct graph_need **need);

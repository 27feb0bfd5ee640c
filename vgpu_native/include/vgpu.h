/* What the parts of libvgpu.so ask of one another.
 *
 * Nothing here knows CUDA: devices are entries of the region, found by their uuid. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "util/log.h"

/* Whether this process is under limits. The first call attaches to the region, as the first one
 * after a fork does; all later calls cost a load. False: control is off, and nothing is counted. */
bool vgpu_ready(void);

/* The entry of a device, by the 16 bytes of its uuid and its ordinal as the process sees it, which
 * the environment's limits go by. Call vgpu_ready first; where it is false, use -1 as the entry.
 * VGPU_DENIED: a device that the container was not given; its limit is 0, and the region has no place
 * for it. All functions below take both, and count nothing. */
#define VGPU_DENIED VGPU_DEVICES_MAX
int vgpu_entry(const unsigned char uuid[16], unsigned ordinal);

/* The same for whoever may be wrong about the ordinal, as NVML is while CUDA has not started: its
 * limits hold until vgpu_entry is told the right one. */
int vgpu_entry_assumed(const unsigned char uuid[16], unsigned ordinal);

/* Reserve bytes of a device: true when they fit and are charged, before the driver is asked. */
bool vgpu_reserve(int entry, uint64_t bytes);

/* Give back bytes that were reserved, after the driver has freed them, or has refused. */
void vgpu_release(int entry, uint64_t bytes);

/* Charge bytes that are in use already, over the limit if need be. */
void vgpu_reserve_forced(int entry, uint64_t bytes);

/* Bytes that all processes of the container use, with what the agent saw beyond. */
uint64_t vgpu_used(int entry);

/* Bytes that may be used, VGPU_NO_LIMIT without a limit; read anew at every call. */
uint64_t vgpu_limit(int entry);

/* Percent of a device's time, 100 without a limit; read anew at every call. */
unsigned vgpu_cores(int entry);

/* Whether memory that the card has no room for is to be given as managed memory, within the limit. */
bool vgpu_oversubscribes(void);

/* The region as it is mapped, and this process's slot in it, for the budget of time. Budgets and the
 * slot's counts are by entry: below VGPU_DEVICES_MAX. NULL when control is off. */
struct vgpu_mapped {
  vgpu_region *region;
  vgpu_slot *slot;
};
const struct vgpu_mapped *vgpu_region_now(void);

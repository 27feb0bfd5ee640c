/* The interface of core to the other parts of libvgpu.so.
 *
 * Core does not use CUDA: devices are entries of the region, found by their uuid. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "util/log.h"

/* Whether this process is under limits. The first call, and the first call after a fork, attaches to
 * the region; later calls cost one load. False: control is off, and nothing is counted. */
bool vgpu_ready(void);

/* The entry of a device. `uuid` is its uuid; `ordinal` is its number in this process, which selects
 * the environment's limits. Call vgpu_ready first; if it returns false, use -1 as the entry.
 * VGPU_DENIED: a device that the container was not given; its limit is 0, and the region has no place
 * for it. All functions below accept both values, and count nothing for them. */
#define VGPU_DENIED VGPU_DEVICES_MAX
int vgpu_entry(const unsigned char uuid[16], unsigned ordinal);

/* The same for a caller whose ordinal may be wrong, as NVML's is while CUDA has not started: the
 * limits of that ordinal hold until vgpu_entry gets the right one. */
int vgpu_entry_assumed(const unsigned char uuid[16], unsigned ordinal);

/* Reserve bytes of a device, before the driver is called. True: they fit, and are charged. */
bool vgpu_reserve(int entry, uint64_t bytes);

/* Give back reserved bytes, after the driver has freed or refused them. */
void vgpu_release(int entry, uint64_t bytes);

/* Charge bytes that are in use already, even beyond the limit. */
void vgpu_reserve_forced(int entry, uint64_t bytes);

/* Bytes that this process has reserved, without those that it shares with others. */
uint64_t vgpu_reserved_here(int entry);

/* Bytes that all processes of the container use, and the overhead that the agent measured. */
uint64_t vgpu_used(int entry);

/* The limit in bytes, VGPU_NO_LIMIT without a limit; read again at every call. */
uint64_t vgpu_limit(int entry);

/* The limit of a device's time in percent, 100 without a limit; read again at every call. */
unsigned vgpu_cores(int entry);

/* Whether memory that the card has no room for is allocated as managed memory, within the limit. */
bool vgpu_oversubscribes(void);

/* The mapped region, and this process's slot in it, for the budget of time. Budgets and the slot's
 * counts are by entry, below VGPU_DEVICES_MAX. NULL when control is off. */
struct vgpu_mapped {
  vgpu_region *region;
  vgpu_slot *slot;
};
const struct vgpu_mapped *vgpu_region_now(void);

/* A charge: bytes of a device that are charged before the driver is asked for them.
 *
 * Reserve, call the driver, then either keep the charge under what the driver answered, or drop it.
 * Kept ones are found again by pointer or handle when that is freed. */
#pragma once

#include "driver.h"
#include "util/handle_map.h"
#include "vgpu.h"

struct vgpu_charge {
  int entry;         /* of the device; -1: nothing is charged */
  uint64_t bytes;
  CUcontext context; /* frees it when it ends; NULL: nothing but a call does */
};

/* What ends with a context. */
extern struct vgpu_map vgpu_memory; /* linear, pitched and managed memory, by pointer */
extern struct vgpu_map vgpu_arrays; /* arrays and mipmapped arrays, by handle */

/* Charge bytes of a device, or of the device of the current context. When they do not fit, memory
 * that this process's pools keep without need is given back first. False: out of memory. */
bool vgpu_charge_device(struct vgpu_charge *charge, int entry, uint64_t bytes);
bool vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes);

/* Keep a charge under a key. False: it could not be written down and is dropped, so the caller has to
 * give the memory back to the driver. */
bool vgpu_charge_store(struct vgpu_map *map, const struct vgpu_charge *charge, uint64_t key);

/* Whether to ask the driver again, after a pause that doubles: when a process is killed, the ledger
 * gives on at once what the driver takes back a moment later. `attempt` begins at 0. */
bool vgpu_charge_retry(const struct vgpu_charge *charge, CUresult result, unsigned *attempt);

/* The driver refused. */
void vgpu_charge_cancel(const struct vgpu_charge *charge);

/* The driver gave other than what was claimed: charge that instead. */
void vgpu_charge_resize(struct vgpu_charge *charge, uint64_t bytes);

/* After an item was taken and the driver asked to free it: uncharge it, or put it back. */
void vgpu_charge_freed(struct vgpu_map *map, const struct vgpu_item *item, CUresult result);

/* Uncharge all items of a context that has ended. */
void vgpu_charges_end(struct vgpu_map *map, CUcontext context);

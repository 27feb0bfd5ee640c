/* The charge of one allocation: bytes of a device that are charged before the driver allocates them.
 *
 * Reserve, call the driver, then either store the charge under the driver's pointer or handle, or cancel
 * it. A stored charge is found again when its pointer or handle is freed. */
#pragma once

#include "driver.h"
#include "util/handle_map.h"
#include "vgpu.h"

struct vgpu_charge {
  int entry;         /* of the device; -1: nothing is charged */
  uint64_t bytes;
  CUcontext context; /* its end frees the memory; NULL: only a call does */
  uint64_t block;    /* the size of the block that this allocation shares; 0: none */
  uint64_t in_block; /* its bytes there */
  bool borrowed;     /* charged beyond the limit until the driver has chosen the block */
};

/* Charges that end with a context. */
extern struct vgpu_map vgpu_memory; /* linear, pitched and managed memory, by pointer */
extern struct vgpu_map vgpu_arrays; /* arrays and mipmapped arrays, by handle */

/* Charge bytes of a device, or of the device of the current context. If they do not fit, this process's
 * pools give back unused memory first. False: out of memory. */
bool vgpu_charge_device(struct vgpu_charge *charge, int entry, uint64_t bytes);
bool vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes);

/* Charge linear memory of the current context's device, as the driver takes it; charge what it really
 * allocated, if that was more. */
bool vgpu_charge_linear(struct vgpu_charge *charge, uint64_t bytes);
void vgpu_charge_resize_linear(struct vgpu_charge *charge, uint64_t bytes);

/* Store a charge under a key. False: there is no memory to store it and it is cancelled, so the caller
 * must give the memory back to the driver. */
bool vgpu_charge_store(struct vgpu_map *map, const struct vgpu_charge *charge, uint64_t key);

/* Whether to call the driver again, after a pause that doubles. When a process is killed, its bytes are
 * free in the ledger at once, but in the driver a moment later. `attempt` starts at 0. */
bool vgpu_charge_retry(const struct vgpu_charge *charge, CUresult result, unsigned *attempt);

/* Give the bytes back after the driver refused. */
static inline void vgpu_charge_cancel(const struct vgpu_charge *charge) {
  if (charge->entry >= 0) vgpu_release(charge->entry, charge->bytes);
}

/* Uncharge a taken item after the driver freed it, or put it back after the driver refused. */
void vgpu_charge_freed(struct vgpu_map *map, const struct vgpu_item *item, CUresult result);

/* Export an allocation of vgpu_memory to other processes under a key, see core/shared_memory.h: its charge
 * becomes that of a share, which this process holds until it frees the allocation. */
void vgpu_charge_share(uint64_t pointer, uint64_t key);

/* The devices with charges in doubt, a bit for each, see doubtful_charges.h. */
extern uint32_t vgpu_doubted;
void vgpu_charge_doubt(int entry);

/* A stream will free an allocation of vgpu_memory, which stays charged. Call it before the driver, which may return the
 * address to another thread at once, and call vgpu_charge_doubt after it. False: it is not stored. */
bool vgpu_charge_leaving(uint64_t pointer, struct vgpu_item *item);
bool vgpu_charge_is_leaving(const struct vgpu_item *item);

/* The driver returned the address of an item for other memory. */
void vgpu_charge_replaced(uint64_t pointer);

/* The entry and the context of an item. */
int vgpu_charge_entry(const struct vgpu_item *item);
CUcontext vgpu_charge_context(const struct vgpu_item *item);

/* Uncharge an item of vgpu_memory that is gone; let the memory of an item end with another context. The item is left
 * alone if it has changed; the first returns whether it had not. */
bool vgpu_charge_ended(const struct vgpu_item *item);
void vgpu_charge_inherit(struct vgpu_map *map, const struct vgpu_item *item, CUcontext heir);

/* Uncharge all items of a context that has ended. */
void vgpu_charges_end(struct vgpu_map *map, CUcontext context);

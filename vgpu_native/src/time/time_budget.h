/* The time budget of one device. Work that uses it up makes later work wait until time has passed.
 *
 * This file does not use CUDA. Times are nanoseconds of the clock in util/clock.h. A share is a percent of
 * the device, 1 to 99. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "util/clock.h"

/* The time that can be saved up while the device is idle: one burst is this times the share. */
#define VGPU_BURST_NS 100000000LL

/* Charge nanoseconds of work, or give back an excess charge (below zero). */
void vgpu_budget_charge(vgpu_budget *budget, int64_t ns, unsigned share);

/* The time until work may begin, 0 for now. */
uint64_t vgpu_budget_wait(const vgpu_budget *budget, uint64_t now);

/* Charge work if it may begin now, and return 0; else return the time until it may. Of several
 * simultaneous callers one succeeds, and the others wait until its work is paid for. */
uint64_t vgpu_budget_take(vgpu_budget *budget, int64_t ns, unsigned share, uint64_t now);

/* The longest pause between two works that begin although the share is used up. */
#define VGPU_PAUSE_MAX_NS 100000000000LL

/* Whether work may begin although the share is used up: that of one process, and then of none during
 * `pause`, at most VGPU_PAUSE_MAX_NS. The caller charges it nevertheless. */
bool vgpu_budget_let_on(vgpu_budget *budget, uint64_t now, uint64_t pause);

/* The device's time of one burst, in nanoseconds. */
static inline int64_t vgpu_burst(unsigned share) { return VGPU_BURST_NS / 100 * share; }

/* The budget of time of one device: who uses it waits until passing time has paid for it.
 *
 * Nothing here knows CUDA. Times are nanoseconds of CLOCK_MONOTONIC, which is one clock for all
 * processes of a machine; a share is a percent of the device, 1 to 99. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

/* Time that may be saved up while nothing runs: one burst is this, times the share. */
#define VGPU_BURST_NS 100000000LL

uint64_t vgpu_monotonic(void);

/* Charge work, or give back (below zero) what was charged too much. */
void vgpu_budget_charge(vgpu_budget *budget, int64_t ns, unsigned share);

/* For how long work may not begin; 0: it may. */
uint64_t vgpu_budget_wait(const vgpu_budget *budget, uint64_t now);

/* Charge work that may begin now, else say for how long it may not. Of several that ask at once, one is
 * let in, and the others wait until its work is paid for. */
uint64_t vgpu_budget_take(vgpu_budget *budget, int64_t ns, unsigned share, uint64_t now);

/* Whether work may begin although the share is used: that of one process, and then of none for so long.
 * It is charged nevertheless. */
bool vgpu_budget_let_on(vgpu_budget *budget, uint64_t now, uint64_t pause);

/* What of the device one burst is. */
static inline int64_t vgpu_burst(unsigned share) { return VGPU_BURST_NS / 100 * share; }

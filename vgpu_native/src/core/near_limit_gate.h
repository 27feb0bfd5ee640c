/* The near-limit gate: a process that is near the limit makes others that are near it wait a moment.
 * Only fairness depends on the gate, so it may be lost, and it expires if its holder is stopped or
 * killed. */
#pragma once

#include <stdint.h>

/* Take the gate, after a short wait if another thread has it. Returns the value to leave it with; 0:
 * the gate was not free. */
uint64_t vgpu_gate_take(uint64_t *gate);
void vgpu_gate_leave(uint64_t *gate, uint64_t taken);

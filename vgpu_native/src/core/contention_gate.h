/* The gate: who is near the limit asks others who are to wait a moment. Nothing depends on it but
 * fairness, so that it may be lost, and a holder that is stopped or killed loses it by itself. */
#pragma once

#include <stdint.h>

/* Take the gate, after waiting a little if somebody has it. Returns what to give back; 0: not got.
 */
uint64_t vgpu_gate_take(uint64_t *gate);
void vgpu_gate_leave(uint64_t *gate, uint64_t taken);

/* Random numbers that a program can neither choose nor foresee. */
#pragma once

#include <stdint.h>

/* The number of times that something does not happen before it does, if it has the probability 1 / `one_in`, a power
 * of two, each time; VGPU_GAP_MAX for so many or more. Threads may call it at the same time. */
#define VGPU_GAP_MAX 256
unsigned vgpu_chance_gap(unsigned one_in);

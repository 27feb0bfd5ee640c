/* Settings from the environment, which hold without a limits page. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Parse a size in bytes: digits, decimal or with 0x, then k, m, g or t (powers of 1024) with or without
 * i and b. For any other text *good becomes false, and the stricter reading is returned: the leading
 * number, without its fraction; 0 if there is none. */
uint64_t vgpu_size(const char *text, bool *good);

/* The environment's limit of a device in bytes, VGPU_NO_LIMIT without a limit. */
uint64_t vgpu_environment_memory(unsigned ordinal);

/* The environment's limit of a device's time in percent, 1 to 100. */
unsigned vgpu_environment_cores(unsigned ordinal);

/* Whether a switch is on: `true`, `1`, `yes` or `on`. An unknown word is logged, and the switch stays
 * off, because all switches here widen limits. */
bool vgpu_switch(const char *name);

/* Whether the environment switches the limit of time off. */
bool vgpu_environment_cores_off(void);

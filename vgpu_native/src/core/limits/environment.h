/* Settings from the environment, which count where no limits page says otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What a text says as a size in bytes: digits, decimal or with 0x, then k, m, g or t (powers of
 * 1024) with or without i and b. Of anything else *good becomes false, and the stricter reading is
 * returned: the number it begins with, and a fraction cut off; 0 where it begins with none. */
uint64_t vgpu_size(const char *text, bool *good);

/* Bytes that a device may use by the environment, VGPU_NO_LIMIT without a limit. */
uint64_t vgpu_environment_memory(unsigned ordinal);

/* Percent of a device's time by the environment, 1 to 100. */
unsigned vgpu_environment_cores(unsigned ordinal);

/* Whether a switch is on: `true`, `1`, `yes` or `on`. Another word than those of off is said, and
 * the switch stays off, as all switches here make limits wider. */
bool vgpu_switch(const char *name);

/* Whether the environment asks that time is not limited. */
bool vgpu_environment_cores_off(void);

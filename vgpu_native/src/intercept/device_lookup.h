/* The entries (see vgpu.h) of CUDA's devices. */
#pragma once

#include "driver.h"

/* The entry of a device by its ordinal, or of the current context's device. -1: none. */
int vgpu_device_entry(CUdevice device);
int vgpu_current_entry(void);

/* Whether this process sees one device only. */
bool vgpu_has_one_device(void);

/* Launches that return when their kernels have ended, by a setting of the driver. */
#pragma once

#include <stdbool.h>

/* Whether launches block. Call it for each launch that took long, with whether its kernel has ended when it returns. */
bool vgpu_launches_block(bool ended);

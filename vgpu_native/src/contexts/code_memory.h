/* The memory of modules and libraries: code and its global arrays. */
#pragma once

#include "driver.h"

/* Uncharge the modules that ended with a context. */
void vgpu_code_ends(CUcontext context);

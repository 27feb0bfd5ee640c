/* The driver's libraries that the process has loaded. */
#pragma once

#include "driver.h"

/* The handle of the library that has the function, NULL while the process has not loaded it. */
void *vgpu_driver_library(enum vgpu_function function);

/* Whether a function of this name is in functions.inc. */
bool vgpu_is_named(const char *name);

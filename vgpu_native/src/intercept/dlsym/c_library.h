/* The C library's own functions, found without dlsym and dlvsym, which this library replaces. */
#pragma once

#include <stdbool.h>

/* A function that the C library of this process exports, NULL if it exports none of this name. */
void *vgpu_c_library_function(const char *name);

/* Whether an address belongs to an object that the loader searches after this library. */
bool vgpu_is_behind(const void *address);

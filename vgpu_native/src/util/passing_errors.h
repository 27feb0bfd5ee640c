/* Errors that pass, and what ends them. */
#pragma once

#include <stdbool.h>

/* Whether a later try may succeed although this one failed with the error. */
bool vgpu_passes(int error);

/* What ends an error that passes, as the last sentence of a log line. */
const char *vgpu_remedy(int error);

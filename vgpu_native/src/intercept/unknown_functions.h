/* Functions of a newer driver: a program gets them without hooks, and this is logged. */
#pragma once

/* Log a function of the driver that functions.inc lacks, once for each name and version. `version` is
 * that of a look-up by cuGetProcAddress; 0: by dlsym. */
void vgpu_log_unknown_function(const char *name, int version);

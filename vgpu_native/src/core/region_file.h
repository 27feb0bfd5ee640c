/* The region file: opened, created or refused. */
#pragma once

#include "layout.h"

/* Map the region at a path, and create it if there is none. NULL: it cannot be used, by errno; 0: the file
 * is refused, and the reason is logged. */
vgpu_region *vgpu_region_open(const char *path);

/* A region of this process alone, for when no shared one can be used. NULL: there is no memory. */
vgpu_region *vgpu_region_private(void);

/* The consequence for a process that cannot use the region, in words for the log. */
const char *vgpu_region_fallback(void);

/* Write the path of the region, by the settings. A directory means the file `region` in it. */
void vgpu_region_path(char *path, size_t room);

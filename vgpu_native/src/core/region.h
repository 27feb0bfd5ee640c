/* The region's file: found, made or refused. */
#pragma once

#include "layout.h"

/* Map the region at a path, and make it where there is none. NULL: it is refused, and it was said
 * why. A path that ends in a directory means the file `region` in it. */
vgpu_region *vgpu_region_open(const char *path);

/* A region that nobody else sees, for when there is no shared one; NULL without memory. */
vgpu_region *vgpu_region_private(void);

/* What becomes of a process that cannot use the region, as the log has it. */
const char *vgpu_region_fallback(void);

/* The path of the region, as settings have it. */
void vgpu_region_path(char *path, size_t room);

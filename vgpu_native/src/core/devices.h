/* The entries of devices in the region; vgpu.h declares how they are looked up. */
#pragma once

#include "core/limits/limits_page.h"
#include "layout.h"

/* What limits an entry, which stays known in the child of a fork; NULL: it was never looked up. */
const struct vgpu_source *vgpu_source_of(int entry);

/* Give the entries that are known their places in a region that was just attached to. */
void vgpu_entries_reclaim(vgpu_region *region);

/* The entries of devices in the region; vgpu.h declares how they are looked up. */
#pragma once

#include "core/limits/limits_page.h"
#include "layout.h"

/* The source of an entry's limits, which a child of a fork keeps. NULL: it was never looked up. */
const struct vgpu_source *vgpu_source_of(int entry);

/* Write a uuid as the driver and NVML do: `GPU-00000000-0000-0000-0000-000000000000`. */
void vgpu_uuid_text(const unsigned char uuid[16], char text[VGPU_UUID_BYTES]);

/* Claim the places of the known entries in a region that was just attached. */
void vgpu_entries_reclaim(vgpu_region *region);

/* What ends with a context, for those who end one. */
#pragma once

#include "util/handle_map.h"

extern struct vgpu_map vgpu_memory; /* cuMemAlloc, pitched and managed memory, by pointer */
extern struct vgpu_map vgpu_arrays; /* arrays and mipmapped arrays, by handle */

/* Where a thread is: its current context, and the device of that. */
#pragma once

#include "driver.h"

struct vgpu_here {
  CUcontext context; /* NULL: none is current */
  int entry;         /* of its device; -1: none */
};

/* What the driver says of this thread, or said a moment ago: see current_context.c. It stays until the next call. */
const struct vgpu_here *vgpu_here(void);

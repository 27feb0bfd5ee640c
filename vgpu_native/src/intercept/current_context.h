/* The current context of a thread, and its device. */
#pragma once

#include "driver.h"

struct vgpu_current_context {
  CUcontext context; /* NULL: none is current */
  int entry;         /* of its device; -1: none */
};

/* The current context of this thread, possibly cached: see current_context.c. The result is valid until
 * the next call. */
const struct vgpu_current_context *vgpu_current_context(void);

/* The entry of the current context's device, from a cache unless `ask`. To ask from time to time corrects
 * the cache, because creating a context also makes it the current one. */
int vgpu_recent_entry(bool ask);

/* Call it when contexts were created or destroyed. Between two calls an address of a context means the
 * same context, and no creation has changed the current context of a thread. */
void vgpu_contexts_changed(void);

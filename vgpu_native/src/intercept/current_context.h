/* Where a thread is: its current context, and the device of that. */
#pragma once

#include "driver.h"

struct vgpu_current_context {
  CUcontext context; /* NULL: none is current */
  int entry;         /* of its device; -1: none */
};

/* What the driver says of this thread, or said a moment ago: see current_context.c. It stays until the next call. */
const struct vgpu_current_context *vgpu_current_context(void);

/* The entry of the current context's device, without asking the driver each time. To `ask` once in a
 * while sets right what is not seen: a context that is created becomes the current one, too. */
int vgpu_recent_entry(bool ask);

/* Contexts were made or have ended: until the next such call an address of a context means the same
 * context, and no thread has come into another one by it. */
void vgpu_contexts_changed(void);

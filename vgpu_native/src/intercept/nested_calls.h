/* Nested calls: the driver calls its own functions inside a hook. They must not be charged twice. */
#pragma once

#include "driver.h"
#include "util/assert.h"
#include "util/lock_order.h"
#include "vgpu.h"

/* Whether this thread is inside a hook. Each hook that charges begins and ends as follows:
 *
 *   if (!vgpu_enter()) return REAL(f)(...);     nested, or control is off
 *   ...
 *   vgpu_leave();
 */
extern __thread bool vgpu_inside __attribute__((tls_model("initial-exec")));

static inline bool vgpu_enter(void) {
  if (vgpu_inside || !vgpu_ready()) return false;
  vgpu_inside = true;
  return true;
}

/* No lock of this library outlives a hook. */
static inline void vgpu_leave(void) {
  VGPU_ASSERT(vgpu_inside && vgpu_holds_no_lock());
  vgpu_inside = false;
}

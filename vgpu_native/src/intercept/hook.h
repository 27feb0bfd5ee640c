/* A hook is a function with the driver's name, marked EXPORT; the build finds it. */
#pragma once

#include "driver.h"
#include "util/assert.h"
#include "util/lock_order.h"
#include "vgpu.h"

/* A symbol that replaces the driver's. All other symbols stay inside the library. */
#define EXPORT __attribute__((visibility("default")))

/* Whether this thread is inside a hook. The driver calls its own functions, which must not be charged twice:
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

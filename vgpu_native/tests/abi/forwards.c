/* Hooks for all functions of the driver, so that interception is tested for those, too, that the
 * library has no hook for; and a ledger under which there are no limits. */
#include "intercept/hook.h"

#include "forwards.inc"

bool vgpu_ready(void) { return false; }

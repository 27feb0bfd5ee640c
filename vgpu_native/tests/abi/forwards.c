/* Hooks for all functions of the driver, to test the interception also of functions that the library does
 * not hook; and a ledger without limits. */
#include "intercept/nested_calls.h"

#include "forwards.inc"

bool vgpu_ready(void) { return false; }

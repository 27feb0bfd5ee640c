/* Charges of memory that may be free already, when the library cannot see that: its context was created past the hooks, or
 * is a green one, whose memory may belong to the primary context, or a stream will free it. The driver decides: it describes
 * an address, or does not. */
#pragma once

#include "driver.h"

/* Ask the driver about the memory of a context, or with NULL about all memory of a device. Memory that lives ends with
 * `heir` from now on, unless that is NULL. */
void vgpu_doubts_settle(int entry, CUcontext context, CUcontext heir);

/* Ask again about a device for which the driver did not answer, because no context was current. Returns whether
 * anything was uncharged. */
bool vgpu_doubts_recheck(int entry);

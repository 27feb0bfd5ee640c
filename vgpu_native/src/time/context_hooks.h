/* The lives of contexts. */
#pragma once

/* How often contexts were made or have ended. While it stays the same, a context's address is that of
 * the same context, and no thread came into another one by it. */
extern unsigned vgpu_contexts_changes;

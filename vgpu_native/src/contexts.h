/* The lives of contexts. */
#pragma once

/* How many have ended. While it stays the same, a context's address is that of the same context. */
extern unsigned vgpu_contexts_ended;

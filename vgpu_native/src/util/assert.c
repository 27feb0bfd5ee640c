#include "util/assert.h"

#include "util/lock_order.h"

#if VGPU_CHECKS

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE = 512 };

__thread unsigned vgpu_ranks_held __attribute__((tls_model("initial-exec")));

/* Standard error may be full or closed: the process aborts either way. */
void vgpu_assertion_failed(const char *condition, const char *file, int line, const char *function) {
  char text[LINE];
  int end = snprintf(text, sizeof text, "gpuledger: assertion failed (%d): %s, in %s at %s:%d\n",
                     (int)getpid(), condition, function, file, line);
  if (end > LINE - 1) end = LINE - 1;
  if (write(STDERR_FILENO, text, (size_t)end) < 0) abort();
  abort();
}

#endif

/* Assertions at two levels. The build chooses the highest level that it checks with VGPU_CHECKS:
 *
 *   0  none: the library that ships. The compiler removes all assertions.
 *   1  cheap: VGPU_ASSERT, a few loads of this process's own state.
 *   2  expensive, too: VGPU_ASSERT_EXPENSIVE, walks over a table or an array.
 *
 * An assertion is a theorem about the library. It holds for all programs, drivers and limits, as long as
 * only the library writes the region. Input is never asserted: the shipped library must handle any.
 * A condition has no effects, because it is not evaluated at level 0. It is compiled at every level, so
 * that it stays correct when the code changes.
 *
 * A failed assertion writes one line to standard error and aborts the process. */
#pragma once

#include <stdbool.h>

#ifndef VGPU_CHECKS
#define VGPU_CHECKS 0
#endif

#define VGPU_ASSERT(condition) VGPU_ASSERT_AT(1, condition)
#define VGPU_ASSERT_EXPENSIVE(condition) VGPU_ASSERT_AT(2, condition)

#define VGPU_ASSERT_AT(level, condition)                                              \
  do {                                                                                \
    if (VGPU_CHECKS >= (level) && __builtin_expect(!(condition), 0))                  \
      vgpu_assertion_failed(#condition, __FILE__, __LINE__, __func__);                \
  } while (0)

/* Report a failed assertion and abort. Takes no lock and no memory. Defined from level 1 on. */
_Noreturn void vgpu_assertion_failed(const char *condition, const char *file, int line,
                                     const char *function);

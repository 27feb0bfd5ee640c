/* Log lines on standard error. */
#pragma once

enum vgpu_level { VGPU_ERROR, VGPU_WARNING, VGPU_NOTE, VGPU_DEBUG };

/* Log a line if `LIBCUDA_LOG_LEVEL` allows its level: 0 errors, 1 warnings, 2 notes, 3 and 4 all. No
 * line comes twice within a second. errno is preserved. */
void vgpu_log(enum vgpu_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The C library's own functions, found without dlsym and dlvsym, which this library replaces. */
#pragma once

#include <stdbool.h>

/* A function that the C library of this process exports, NULL if it exports none of this name. */
void *vgpu_c_library_function(const char *name);

/* Whether two texts are the same. Tools that replace strcmp, such as sanitizers, look symbols up before theirs
 * can be called. */
static inline bool vgpu_same_text(const char *left, const char *right) {
  for (; *left && *left == *right; left++) right++;
  return *left == *right;
}

/* Whether an address belongs to an object that the loader searches after this library. */
bool vgpu_is_behind(const void *address);

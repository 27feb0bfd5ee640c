/* The real dlsym, the driver's libraries, and the table of hooks. */
#pragma once

#include "driver.h"

typedef void *dlsym_function(void *handle, const char *name);

/* dlsym of the C library, or of a library that was preloaded after this one; never NULL. */
dlsym_function *vgpu_dlsym(void);

/* The handle of the library that has the function, NULL while the process has not loaded it. */
void *vgpu_library(enum vgpu_function function);

struct vgpu_hook {
  const char *name;
  enum vgpu_function function;
  void *address;
};

/* The hooks one after the other, NULL after the last one. */
const struct vgpu_hook *vgpu_hook_at(size_t index);

/* The hook of this name, or NULL. */
const struct vgpu_hook *vgpu_hook_named(const char *name);

/* The hook of the driver's function at this address, or NULL. */
const struct vgpu_hook *vgpu_hook_of(const void *real);

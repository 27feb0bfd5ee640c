/* The table of hooks. */
#pragma once

#include "driver.h"

struct vgpu_hook {
  const char *name;
  enum vgpu_function function;
  void *address;
};

/* The hook at an index, NULL after the last one. */
const struct vgpu_hook *vgpu_hook_at(size_t index);

/* The hook of this name, or NULL. */
const struct vgpu_hook *vgpu_hook_named(const char *name);

/* The driver's ways to memory of a device, all alike: so many bytes are taken, and given back. */
#pragma once

#include "gpu.h"

/* What was taken; which of them is in use depends on the allocator. */
struct taken {
  CUdeviceptr pointer;
  CUarray array;
  CUmipmappedArray mipmap;
  CUmemGenericAllocationHandle handle;
  size_t bytes;
};

struct allocator {
  const char *name;
  size_t granule; /* bytes; takes are multiples of it */
  CUresult (*take)(size_t bytes, struct taken *taken);
  void (*give)(struct taken *taken);
};

/* All of them; one without a name follows the last. A context has to be current. */
const struct allocator *allocators(void);

/* The driver's allocators of device memory in one form: bytes are taken, and given back. */
#pragma once

#include "gpu.h"

/* An allocation; the fields in use depend on the allocator. */
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

/* All allocators; the last is followed by one without a name. A context must be current. */
const struct allocator *allocators(void);

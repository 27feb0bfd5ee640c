/* The memory of contexts and code: what this process has more after a call than before is charged. */
#pragma once

#include "driver.h"
#include "vgpu.h"

/* Whether contexts and code of a device are charged: it has a limit, and the limits page does not exempt them. */
bool vgpu_contexts_charged(int entry);

/* Around the creation of a context. */
struct vgpu_creation {
  int entry; /* -1: it is not charged */
  CUdevice device;
  bool green, first;  /* first: this process had no context of the device */
  bool claimed;       /* it is measured */
  uint64_t reserved, charged; /* bytes: for the known size; by this process in all */
};

/* False: a context of the known size does not fit. */
bool vgpu_creation_begin(struct vgpu_creation *creation, CUdevice device, bool green);

/* False: the context does not fit, and is not charged; the caller ends it. */
bool vgpu_creation_end(struct vgpu_creation *creation, CUresult result, CUcontext context);

/* Charge more to the current context, or what its charge has too much. */
void vgpu_context_add(CUcontext context, int entry, int64_t bytes);

/* Whether so many bytes are charged to a context. */
bool vgpu_context_has(CUcontext context, uint64_t bytes);

/* Uncharge a context that has ended, and forget what stayed charged for its limits. */
void vgpu_context_uncharge(CUcontext context);
void vgpu_limits_end(CUcontext context);

/* Memory of limits that a context was promised, and that the driver takes later. Growth includes it first. */
void vgpu_promise(int entry, uint64_t bytes);
uint64_t vgpu_beyond_promise(int entry, uint64_t grown);

/* The source of limits: the page that the node agent writes, or the environment. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Map the page if there is one; later calls do nothing. False: the page cannot be opened for now, so that
 * limits are unknown; the `first` time it is logged. */
bool vgpu_limits_open(bool first);

/* Whether there is a page, valid or not. */
bool vgpu_limits_paged(void);

/* Whether CUDA_DISABLE_CONTROL switches all limits off. A limits page must allow that. */
bool vgpu_limits_disabled(void);

/* Whether the container's own environment may switch limits off. */
bool vgpu_limits_may_disable(void);

/* Whether the memory of contexts and code does not count. */
bool vgpu_limits_contexts_exempt(void);

/* Whether the container's own environment may not choose the region: the page is mounted, and does not
 * allow it. With a region of its own each process would have the whole limit. */
bool vgpu_limits_binding(void);

/* The index of a device in the page, by its uuid as text. The prefix of the text becomes that of the
 * page: `MIG-` for a MIG instance. -1: the page does not name the device. */
int vgpu_limits_find(char *uuid);

/* The source of a device's limits: its index in the page, or else the environment's limits. */
struct vgpu_source {
  int page;
  uint64_t memory;
  unsigned cores;
};

uint64_t vgpu_limits_memory(const struct vgpu_source *source);
uint64_t vgpu_limits_overhead(const struct vgpu_source *source);
unsigned vgpu_limits_cores(const struct vgpu_source *source);

/* The number of changes to the page; a constant word without a page. */
const uint64_t *vgpu_limits_changes(void);

/* Whether no device has a limit of time at the moment. */
bool vgpu_limits_cores_unlimited(void);

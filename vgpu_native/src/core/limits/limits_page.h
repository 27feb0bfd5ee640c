/* Where limits come from: the page that the node agent writes, or the environment. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Map the page if there is one; later calls do nothing. */
void vgpu_limits_open(void);

/* Whether there is a page, be it good or bad. */
bool vgpu_limits_paged(void);

/* Whether the container's own environment may switch limits off. */
bool vgpu_limits_may_disable(void);

/* Whether the container's own environment may not choose the region: the page was mounted, and does
 * not allow it. Another region for each process would be the whole limit for each. */
bool vgpu_limits_binding(void);

/* The page's number of a device by its uuid as text, whose first letters become those of the page:
 * `MIG-` for a part of a card. -1: it names none such. */
int vgpu_limits_find(char *uuid);

/* What limits a device: its number in the page, or else what the environment said of it. */
struct vgpu_source {
  int page;
  uint64_t memory;
  unsigned cores;
};

uint64_t vgpu_limits_memory(const struct vgpu_source *source);
uint64_t vgpu_limits_overhead(const struct vgpu_source *source);
unsigned vgpu_limits_cores(const struct vgpu_source *source);

/* The number of changes to the page; a word that stays, without one. */
const uint64_t *vgpu_limits_changes(void);

/* Whether no device at all has a limit of time, as things are. */
bool vgpu_limits_cores_unlimited(void);

/* Memory that another process of the container exported, while this process holds it. */
#pragma once

#include "core/shared_memory.h"
#include "driver.h"

struct vgpu_import {
  int share; /* -1: it could not be identified */
};

/* Hold the memory with a key before the driver imports it, and no longer after it has freed it. */
static inline struct vgpu_import vgpu_import_begin(uint64_t key) {
  struct vgpu_import import = {vgpu_share_join(key)};
  if (import.share < 0) vgpu_unidentified_join();
  return import;
}

static inline void vgpu_import_end(struct vgpu_import import) {
  if (import.share < 0) vgpu_unidentified_leave();
  else vgpu_share_leave(import.share);
}

/* An import as a number for an item's note, never 0. */
static inline uint64_t vgpu_import_note(struct vgpu_import import) { return (uint64_t)(import.share + 2); }
static inline struct vgpu_import vgpu_import_of(uint64_t note) { return (struct vgpu_import){(int)note - 2}; }

/* Whether an item's note is that of an import. */
static inline bool vgpu_import_is(uint64_t note) { return note != 0; }

/* The end of a context closes what it has opened by cuIpcOpenMemHandle. */
void vgpu_imports_end(CUcontext context);

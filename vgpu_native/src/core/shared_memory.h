/* Memory of a device that several processes of the container hold: exported by one, imported by others. It is
 * charged once, in the region, while a holder lives, and not to a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The key of memory that an importer cannot identify. Other keys are any numbers above it. */
#define VGPU_UNIDENTIFIED 1

/* Share memory of a device that this process holds. From then on the share is charged, too, and the caller
 * releases its own charge. -1: there is no room for a share, and the memory stays charged to this process. */
int vgpu_share_begin(int entry, uint64_t bytes, uint64_t key);

/* Export shared memory once more, under another key: importers cannot identify it from then on. */
void vgpu_share_rename(int share, uint64_t key);

/* Hold the memory with a key, before the driver imports it. -1: no share has this key. */
int vgpu_share_join(uint64_t key);

/* Hold the memory no longer, once for each begin and join, after the driver has freed it. */
void vgpu_share_leave(int share);

/* The same for an import that cannot be identified: it holds all unidentified shares. */
void vgpu_unidentified_join(void);
void vgpu_unidentified_leave(void);

/* Bytes of a device in shares; without those whose holders are dead, if `living`. */
uint64_t vgpu_shared_bytes(int entry, bool living);

/* A key for bytes that identify exported memory. */
uint64_t vgpu_share_key(const void *content, unsigned size);

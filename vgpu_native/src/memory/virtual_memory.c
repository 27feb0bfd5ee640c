/* Virtual memory management: physical memory by handle.
 *
 * References to a handle come from its creation, from each import and retain that returned it again, and
 * from each mapping. When the last reference goes, the memory is uncharged. Exported memory is charged to a share
 * that its importers hold, too. Handles of the host's memory are not stored here. */
#include <sys/stat.h>

#include "intercept/device_lookup.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "memory/imports.h"
#include "statx_compat.h"

#define BATCH 32
#define IMPORT_SHIFT 40
#define STEP (2ULL << 20) /* the smallest granularity of a device's memory */
#define ADDRESS_SPACE_BYTES (1ULL << 47) /* no program's address space is larger */

/* Note: the references in the lower half, then 8 bits of entry, and the import or share, see imports.h. */
static struct vgpu_map handles;
static struct vgpu_map mappings; /* address to bytes; note: the handle */

/* A dropped reference, and the handle's state after that. */
struct dropped {
  struct vgpu_item item;
  bool known;
};

static bool add_reference(CUmemGenericAllocationHandle handle) {
  struct vgpu_item item;
  return vgpu_map_count(&handles, handle, 1, &item);
}

/* Called before the driver, which may return the same handle to another thread at once. */
static struct dropped drop_reference(CUmemGenericAllocationHandle handle) {
  struct dropped dropped;
  dropped.known = vgpu_map_count(&handles, handle, -1, &dropped.item);
  return dropped;
}

static int entry_in(uint64_t note) { return (int)(note >> 32 & 0xff); }

static void release_handle(const struct vgpu_item *item) {
  uint64_t import = item->note >> IMPORT_SHIFT;
  if (vgpu_import_is(import)) vgpu_import_end(vgpu_import_of(import));
  else vgpu_release(entry_in(item->note), item->bytes);
}

/* Uncharge a handle without references, or add the reference again if the driver refused. */
static void finish_drop(const struct dropped *was, CUresult result) {
  struct vgpu_item item = was->item, old;
  bool last = was->known && !(uint32_t)item.note;
  if (result == CUDA_SUCCESS) {
    if (last) release_handle(&item);
  } else if (last) {
    item.note |= 1;
    vgpu_map_put(&handles, item, &old);
  } else if (was->known) {
    add_reference(item.key);
  }
}

static void drop_now(CUmemGenericAllocationHandle handle) {
  struct dropped was = drop_reference(handle);
  finish_drop(&was, CUDA_SUCCESS);
}

/* Store a created handle. The notes of charges have no count, so the note has another form. */
static CUresult store_handle(const struct vgpu_charge *charge, CUmemGenericAllocationHandle handle) {
  struct vgpu_item item = {handle, charge->bytes, (uint64_t)charge->entry << 32 | 1}, old;
  if (charge->entry < 0) return CUDA_SUCCESS;
  if (!vgpu_map_put(&handles, item, &old)) {
    REAL(cuMemRelease)(handle);
    vgpu_charge_cancel(charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (old.key) release_handle(&old);
  return CUDA_SUCCESS;
}

static int entry_of(const CUmemAllocationProp *prop) {
  bool device = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return device ? vgpu_device_entry(prop->location.id) : -1;
}

EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                                    const CUmemAllocationProp *prop, unsigned long long flags) {
  if (!vgpu_enter()) return REAL(cuMemCreate)(handle, size, prop, flags);
  struct vgpu_charge charge;
  unsigned attempt = 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_device(&charge, entry_of(prop), size)) {
    do {
      result = REAL(cuMemCreate)(handle, size, prop, flags);
    } while (vgpu_charge_retry(&charge, result, &attempt));
    if (result == CUDA_SUCCESS) result = store_handle(&charge, *handle);
    else vgpu_charge_cancel(&charge);
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (!vgpu_enter()) return REAL(cuMemRelease)(handle);
  struct dropped was = drop_reference(handle);
  CUresult result = REAL(cuMemRelease)(handle);
  finish_drop(&was, result);
  vgpu_leave();
  return result;
}

/* What identifies an exported handle to its importer: the bytes of a fabric handle, or the file of a descriptor.
 * The driver's own files are of one device, which distinguishes none of them. */
static uint64_t key_of(const void *handle, int file, CUmemAllocationHandleType type) {
  struct stat state;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) return vgpu_share_key(handle, sizeof(CUmemFabricHandle));
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || vgpu_fstat(file, &state) || !S_ISREG(state.st_mode)) {
    return VGPU_UNIDENTIFIED;
  }
  return vgpu_share_key((uint64_t[]){state.st_dev, state.st_ino}, 2 * sizeof(uint64_t));
}

/* A handle that is exported again under another key is found by neither. */
static void share_handle(CUmemGenericAllocationHandle handle, uint64_t key) {
  struct vgpu_item item, old;
  if (!vgpu_map_find(&handles, handle, &item)) return;
  uint64_t import = item.note >> IMPORT_SHIFT;
  if (vgpu_import_is(import)) return vgpu_share_rename(vgpu_import_of(import).share, key);
  int share = vgpu_share_begin(entry_in(item.note), item.bytes, key);
  if (share < 0) return;
  uint64_t note = vgpu_import_note((struct vgpu_import){share});
  bool first = vgpu_map_mark(&handles, handle, note << IMPORT_SHIFT, &old) && !(old.note >> IMPORT_SHIFT);
  if (first) vgpu_release(entry_in(item.note), item.bytes);
  else vgpu_share_leave(share);
}

EXPORT CUresult CUDAAPI cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                                     CUmemAllocationHandleType handleType,
                                                     unsigned long long flags) {
  if (!vgpu_enter()) return REAL(cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
  CUresult result = REAL(cuMemExportToShareableHandle)(shareableHandle, handle, handleType, flags);
  bool file = handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (result == CUDA_SUCCESS) {
    share_handle(handle, key_of(shareableHandle, file ? *(int *)shareableHandle : -1, handleType));
  }
  vgpu_leave();
  return result;
}

/* The driver may return a handle that this process has, which then counts another reference. */
static void imported(CUmemGenericAllocationHandle handle, struct vgpu_import import) {
  struct vgpu_item item = {handle, 0, vgpu_import_note(import) << IMPORT_SHIFT | 1}, old;
  bool known = add_reference(handle);
  if (!known && !vgpu_map_put(&handles, item, &old)) return;
  if (known) vgpu_import_end(import);
  else if (old.key) release_handle(&old);
}

EXPORT CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                       void *osHandle,
                                                       CUmemAllocationHandleType shHandleType) {
  if (!vgpu_enter()) return REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
  struct vgpu_import import = vgpu_import_begin(key_of(osHandle, (int)(intptr_t)osHandle, shHandleType));
  CUresult result = REAL(cuMemImportFromShareableHandle)(handle, osHandle, shHandleType);
  if (result == CUDA_SUCCESS) imported(*handle, import);
  else vgpu_import_end(import);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  if (!vgpu_enter()) return REAL(cuMemRetainAllocationHandle)(handle, addr);
  CUresult result = REAL(cuMemRetainAllocationHandle)(handle, addr);
  if (result == CUDA_SUCCESS) add_reference(*handle);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                                 CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (!vgpu_enter()) return REAL(cuMemMap)(ptr, size, offset, handle, flags);
  bool held = add_reference(handle);
  CUresult result = REAL(cuMemMap)(ptr, size, offset, handle, flags);
  struct vgpu_item old = {0};
  if (held && result != CUDA_SUCCESS) drop_now(handle);
  if (held && result == CUDA_SUCCESS) {
    if (!vgpu_map_put(&mappings, (struct vgpu_item){ptr, size, handle}, &old)) {
      REAL(cuMemUnmap)(ptr, size);
      drop_now(handle);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (old.key) drop_now(old.note);
  }
  vgpu_leave();
  return result;
}

/* Adjacent mappings, taken out of the map with their references. */
struct batch {
  struct vgpu_item mapping[BATCH];
  struct dropped handle[BATCH];
  unsigned count;
};

/* Take mappings from an address on, until the batch is full or the end is reached. Returns the address
 * behind them. */
static CUdeviceptr take_mappings(struct batch *batch, CUdeviceptr at, CUdeviceptr end) {
  for (batch->count = 0; at < end && batch->count < BATCH;) {
    struct vgpu_item *mapping = &batch->mapping[batch->count];
    if (vgpu_map_take(&mappings, at, mapping)) {
      batch->handle[batch->count++] = drop_reference(mapping->note);
      at += mapping->bytes;
    } else {
      at += STEP;
    }
  }
  return at < end ? at : end;
}

static void finish_unmap(const struct batch *batch, CUresult result) {
  struct vgpu_item old;
  for (unsigned i = 0; i < batch->count; i++) {
    finish_drop(&batch->handle[i], result);
    if (result != CUDA_SUCCESS) vgpu_map_put(&mappings, batch->mapping[i], &old);
  }
}

/* One call may end many mappings. If they do not fit into a batch, the driver is called in parts. */
EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size) {
  if (size > ADDRESS_SPACE_BYTES || !vgpu_enter()) return REAL(cuMemUnmap)(ptr, size);
  struct batch batch;
  CUresult result;
  CUdeviceptr at = ptr, end = ptr + size, next;
  do {
    next = take_mappings(&batch, at, end);
    result = REAL(cuMemUnmap)(at, next - at);
    finish_unmap(&batch, result);
    at = next;
  } while (result == CUDA_SUCCESS && at < end);
  vgpu_leave();
  return result;
}

/* Memory of cuMemAlloc that processes share by handles (cuIpcGetMemHandle). The bytes of a handle are the key by
 * which an importer finds the share of the exporter. */
#include "core/shared_memory.h"
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "memory/imports.h"

/* Opened memory by pointer. `bytes` is the context. The lower half of the note counts how often it was opened, its
 * upper half is the import. */
static struct vgpu_map opened;

EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr) {
  if (!vgpu_enter()) return REAL(cuIpcGetMemHandle)(pHandle, dptr);
  CUresult result = REAL(cuIpcGetMemHandle)(pHandle, dptr);
  CUdeviceptr base = dptr;
  if (result == CUDA_SUCCESS) {
    REAL(cuMemGetAddressRange_v2)(&base, NULL, dptr);
    vgpu_charge_share(base, vgpu_share_key(pHandle, sizeof *pHandle));
  }
  vgpu_leave();
  return result;
}

/* Memory that is opened again has the same address, and one import until its last close. */
static void opened_once(CUdeviceptr pointer, struct vgpu_import import) {
  struct vgpu_item item, old;
  if (vgpu_map_count(&opened, pointer, 1, &item)) return vgpu_import_end(import);
  uint64_t context = (uintptr_t)vgpu_current_context()->context;
  vgpu_map_put(&opened, (struct vgpu_item){pointer, context, vgpu_import_note(import) << 32 | 1}, &old);
}

static CUresult open_handle(CUresult (*real)(CUdeviceptr *, CUipcMemHandle, unsigned), CUdeviceptr *pointer,
                            CUipcMemHandle handle, unsigned flags) {
  struct vgpu_import import = vgpu_import_begin(vgpu_share_key(&handle, sizeof handle));
  CUresult result = real(pointer, handle, flags);
  if (result == CUDA_SUCCESS) opened_once(*pointer, import);
  else vgpu_import_end(import);
  return result;
}

#define OPEN(name)                                                                               \
  EXPORT CUresult CUDAAPI name(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags) { \
    if (!vgpu_enter()) return REAL(name)(pdptr, handle, Flags);                                  \
    CUresult result = open_handle(REAL(name), pdptr, handle, Flags);                             \
    vgpu_leave();                                                                                \
    return result;                                                                               \
  }

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr dptr) {
  if (!vgpu_enter()) return REAL(cuIpcCloseMemHandle)(dptr);
  struct vgpu_item item, old;
  bool known = vgpu_map_count(&opened, dptr, -1, &item);
  CUresult result = REAL(cuIpcCloseMemHandle)(dptr);
  bool last = known && !(uint32_t)item.note;
  if (last && result == CUDA_SUCCESS) vgpu_import_end(vgpu_import_of(item.note >> 32));
  if (known && result != CUDA_SUCCESS && !vgpu_map_count(&opened, dptr, 1, &old)) {
    item.note |= 1;
    vgpu_map_put(&opened, item, &old);
  }
  vgpu_leave();
  return result;
}

static bool close_if_ended(const struct vgpu_item *item, const void *context) {
  if (item->bytes != (uintptr_t)context) return false;
  vgpu_import_end(vgpu_import_of(item->note >> 32));
  return true;
}

void vgpu_imports_end(CUcontext context) {
  if (context) vgpu_map_sweep(&opened, close_if_ended, context);
}

/* The driver's memory information, reduced to the container's share. */
#include "memory/memory_info.h"

#include "intercept/device_lookup.h"
#include "intercept/hook.h"
#include "memory/graph_memory.h"
#include "memory/memory_pools.h"

struct vgpu_memory_view vgpu_memory_view(int entry, uint64_t free, uint64_t total) {
  struct vgpu_memory_view view = {free, total};
  uint64_t limit = entry < 0 ? VGPU_NO_LIMIT : vgpu_limit(entry);
  if (limit == VGPU_NO_LIMIT) return view;
  uint64_t used = vgpu_used(entry), left = used < limit ? limit - used : 0;
  /* With oversubscription neither the card's size nor the usage of others limits the container. */
  if (vgpu_oversubscribes()) return (struct vgpu_memory_view){left, limit};
  if (limit < total) view.total = limit;
  if (left < free) view.free = left;
  return view;
}

/* Numbers of the first version of the driver have 32 bits. */
static unsigned saturate_32(uint64_t bytes) { return bytes > 0xffffffffULL ? 0xffffffffU : (unsigned)bytes; }

static CUresult read_view(struct vgpu_memory_view *view) {
  size_t free = 0, total = 0;
  CUresult result = REAL(cuMemGetInfo_v2)(&free, &total);
  if (result != CUDA_SUCCESS) return result;
  vgpu_pools_update_charges();
  vgpu_graphs_update_charges();
  *view = vgpu_memory_view(vgpu_current_entry(), free, total);
  return result;
}

EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total) {
  if (!vgpu_enter()) return REAL(cuMemGetInfo_v2)(free, total);
  struct vgpu_memory_view view;
  CUresult result = read_view(&view);
  if (result == CUDA_SUCCESS && free) *free = view.free;
  if (result == CUDA_SUCCESS && total) *total = view.total;
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMemGetInfo(unsigned int *free, unsigned int *total) {
  if (!vgpu_enter()) return REAL(cuMemGetInfo)(free, total);
  struct vgpu_memory_view view;
  CUresult result = read_view(&view);
  if (result == CUDA_SUCCESS && free) *free = saturate_32(view.free);
  if (result == CUDA_SUCCESS && total) *total = saturate_32(view.total);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, dev);
  if (result != CUDA_SUCCESS || !vgpu_enter()) return result;
  *bytes = vgpu_memory_view(vgpu_device_entry(dev), 0, *bytes).total;
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
  CUresult result = REAL(cuDeviceTotalMem)(bytes, dev);
  size_t total;
  if (result != CUDA_SUCCESS || !vgpu_enter()) return result;
  if (REAL(cuDeviceTotalMem_v2)(&total, dev) == CUDA_SUCCESS) {
    *bytes = saturate_32(vgpu_memory_view(vgpu_device_entry(dev), 0, total).total);
  }
  vgpu_leave();
  return result;
}

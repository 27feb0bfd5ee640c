/* CUDA arrays and mipmapped arrays. The driver does not report their sizes, so the size is computed: rows in
 * steps of 64 bytes, heights in steps of the blocks of textures, and each level in pages of 64 KiB. The driver may take larger pages
 * for the whole, see granularity.h. */
#include "intercept/current_context.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "memory/granularity/granularity.h"
#include "util/arithmetic.h"

#define ROW 64
#define STEP 65536

/* Bytes of one element, of all its channels. Of video formats, whose planes differ, the largest. */
static uint64_t element_bytes(CUarray_format format, uint64_t channels) {
  static const unsigned char normal[6] = {1, 2, 4, 2, 4, 8};
  switch ((unsigned)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4 * channels;
    case CU_AD_FORMAT_UNORM_INT_101010_2: return 4;
    case CU_AD_FORMAT_UNORM_INT8X1 ... CU_AD_FORMAT_SNORM_INT16X4: return normal[(format - 0xc0) % 6];
    /* 16 elements lie in a block of 8 or 16 bytes. */
    case CU_AD_FORMAT_BC1_UNORM ... CU_AD_FORMAT_BC7_UNORM_SRGB: return 1;
    default: return 8;
  }
}

/* Rows of a texture lie in blocks of 8 to 128 rows; the driver selects the block by the height. */
static uint64_t padded_rows(uint64_t height) {
  uint64_t block = 8;
  if (height <= 1) return 1;
  while (block < 128 && block < height) block *= 2;
  return vgpu_rounded(height, block);
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned level) {
  uint64_t width = shape->Width >> level, height = shape->Height >> level, depth = shape->Depth >> level;
  if (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) depth = shape->Depth;
  uint64_t row = vgpu_product(width ? width : 1, element_bytes(shape->Format, shape->NumChannels));
  uint64_t plane = vgpu_product(vgpu_rounded(row, ROW), padded_rows(height));
  return vgpu_rounded(vgpu_product(plane, depth ? depth : 1), STEP);
}

/* Bytes of all levels, each as the driver takes it. Arrays into which the program maps memory have none of their own. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
  uint64_t sum = 0;
  const struct vgpu_granularity *granularity = vgpu_granularity(VGPU_ARRAYS, vgpu_current_context()->entry);
  if (!shape || shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
  for (unsigned level = 0; level < levels && level < 64; level++) {
    uint64_t bytes = vgpu_granular(granularity, level_bytes(shape, level));
    if (__builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
  }
  return sum;
}

/* Convert the older descriptions to the newest one. */
static CUDA_ARRAY3D_DESCRIPTOR from_2d(const CUDA_ARRAY_DESCRIPTOR *of) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Flags = CUDA_ARRAY3D_SPARSE};
  if (!of) return shape;
  return (CUDA_ARRAY3D_DESCRIPTOR){of->Width, of->Height, 0, of->Format, of->NumChannels, 0};
}

static CUDA_ARRAY3D_DESCRIPTOR from_2d_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *of) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Flags = CUDA_ARRAY3D_SPARSE};
  if (!of) return shape;
  return (CUDA_ARRAY3D_DESCRIPTOR){of->Width, of->Height, 0, of->Format, of->NumChannels, 0};
}

static CUDA_ARRAY3D_DESCRIPTOR from_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *of) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Flags = CUDA_ARRAY3D_SPARSE};
  if (!of) return shape;
  return (CUDA_ARRAY3D_DESCRIPTOR){of->Width,  of->Height,      of->Depth,
                                   of->Format, of->NumChannels, of->Flags};
}

static CUresult finish(const struct vgpu_charge *charge, CUresult result, CUarray *array) {
  if (result != CUDA_SUCCESS) {
    vgpu_charge_cancel(charge);
    return result;
  }
  if (vgpu_charge_store(&vgpu_arrays, charge, (uintptr_t)*array)) return result;
  REAL(cuArrayDestroy)(*array);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* All functions that create an array, by their kind of description. */
#define CREATE(name, descriptor, described)                                          \
  EXPORT CUresult CUDAAPI name(CUarray *pHandle, const descriptor *pAllocateArray) { \
    if (!vgpu_enter()) return REAL(name)(pHandle, pAllocateArray);                   \
    CUDA_ARRAY3D_DESCRIPTOR shape = described;                                       \
    struct vgpu_charge charge;                                                       \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                      \
    if (vgpu_charge_current(&charge, bytes_of(&shape, 1))) {                         \
      result = finish(&charge, REAL(name)(pHandle, pAllocateArray), pHandle);        \
    }                                                                                \
    vgpu_leave();                                                                    \
    return result;                                                                   \
  }

static CUDA_ARRAY3D_DESCRIPTOR from_3d(const CUDA_ARRAY3D_DESCRIPTOR *of) {
  return of ? *of : (CUDA_ARRAY3D_DESCRIPTOR){.Flags = CUDA_ARRAY3D_SPARSE};
}

CREATE(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, from_2d_v1(pAllocateArray))
CREATE(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, from_2d(pAllocateArray))
CREATE(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, from_3d_v1(pAllocateArray))
CREATE(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, from_3d(pAllocateArray))

EXPORT CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                               const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                               unsigned int numMipmapLevels) {
  if (!vgpu_enter()) return REAL(cuMipmappedArrayCreate)(pHandle, pMipmappedArrayDesc, numMipmapLevels);
  struct vgpu_charge charge;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (vgpu_charge_current(&charge, bytes_of(pMipmappedArrayDesc, numMipmapLevels))) {
    result = REAL(cuMipmappedArrayCreate)(pHandle, pMipmappedArrayDesc, numMipmapLevels);
    if (result != CUDA_SUCCESS) {
      vgpu_charge_cancel(&charge);
    } else if (!vgpu_charge_store(&vgpu_arrays, &charge, (uintptr_t)*pHandle)) {
      REAL(cuMipmappedArrayDestroy)(*pHandle);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray hArray) {
  if (!vgpu_enter()) return REAL(cuArrayDestroy)(hArray);
  struct vgpu_item item;
  bool ours = vgpu_map_take(&vgpu_arrays, (uintptr_t)hArray, &item);
  CUresult result = REAL(cuArrayDestroy)(hArray);
  if (ours) vgpu_charge_freed(&vgpu_arrays, &item, result);
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  if (!vgpu_enter()) return REAL(cuMipmappedArrayDestroy)(hMipmappedArray);
  struct vgpu_item item;
  bool ours = vgpu_map_take(&vgpu_arrays, (uintptr_t)hMipmappedArray, &item);
  CUresult result = REAL(cuMipmappedArrayDestroy)(hMipmappedArray);
  if (ours) vgpu_charge_freed(&vgpu_arrays, &item, result);
  vgpu_leave();
  return result;
}

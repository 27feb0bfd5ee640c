/* Arrays and mipmaps. A real card has its own layouts; here each takes whole steps. */
#include "cuda_stub.h"

#include <stdlib.h>

#define UNBACKED (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

struct CUarray_st {
  CUDA_ARRAY3D_DESCRIPTOR desc;
  int device;
  uint64_t bytes;
  bool level; /* of a mipmap, with which it ends */
};

struct CUmipmappedArray_st {
  CUDA_ARRAY3D_DESCRIPTOR desc;
  int device;
  uint64_t bytes;
  unsigned levels;
  struct CUarray_st each[32];
};

/* The arrays, each with the context with which it ends. */
struct held {
  const void *object;
  CUcontext context;
  int device;
  uint64_t bytes;
  struct held *next;
};

static struct held *all;

static bool hold(const void *object, int device, uint64_t bytes)
{
  struct held *made = malloc(sizeof *made);
  if (!made) return false;
  stub_lock_objects();
  *made = (struct held){object, stub_memory_context(), device, bytes, all};
  all = made;
  stub_unlock_objects();
  return true;
}

void stub_forget_arrays(void)
{
  all = NULL;
}

/* Objects are locked. */
static void let_go(struct held **link)
{
  struct held *held = *link;
  *link = held->next;
  stub_give(held->device, held->bytes);
  free((void *)held->object);
  free(held);
}

static CUresult destroy(const void *object)
{
  stub_lock_objects();
  struct held **link = &all;
  while (*link && (*link)->object != object) link = &(*link)->next;
  bool known = *link;
  if (known) let_go(link);
  stub_unlock_objects();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void stub_arrays_end(CUcontext context)
{
  for (struct held **link = &all; *link;)
    if ((*link)->context == context) let_go(link);
    else link = &(*link)->next;
}

static uint64_t element(CUarray_format format)
{
  switch (format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
  case CU_AD_FORMAT_SIGNED_INT8: return 1;
  case CU_AD_FORMAT_UNSIGNED_INT16:
  case CU_AD_FORMAT_SIGNED_INT16:
  case CU_AD_FORMAT_HALF: return 2;
  default: return 4;
  }
}

static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
  uint64_t height = desc->Height ? desc->Height : 1, depth = desc->Depth ? desc->Depth : 1;
  if (height > 1) height = round_up(height, stub_step(STEP_ARRAY_ROWS));
  return round_up(desc->Width * height * depth * desc->NumChannels * element(desc->Format), stub_step(STEP_ARRAY));
}

static bool sane(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
  unsigned n = desc->NumChannels;
  return desc->Width && desc->Width < 1u << 20 && desc->Height < 1u << 20 && desc->Depth < 1u << 15 &&
         (n == 1 || n == 2 || n == 4);
}

CUresult stub_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
  int device = stub_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!array || !desc || !sane(desc)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes = desc->Flags & UNBACKED ? 0 : bytes_of(desc);
  if (!stub_take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *array = malloc(sizeof **array);
  if (!*array) return CUDA_ERROR_OUT_OF_MEMORY;
  **array = (struct CUarray_st){*desc, device, bytes, false};
  return hold(*array, device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat)
{
  if (!flat) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR desc = {flat->Width, flat->Height, 0, flat->Format, flat->NumChannels, 0};
  return stub_cuArray3DCreate_v2(array, &desc);
}

CUresult stub_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
  if (!desc || !array) return CUDA_ERROR_INVALID_VALUE;
  *desc = array->desc;
  return CUDA_SUCCESS;
}

CUresult stub_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
  if (!desc || !array) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR *whole = &array->desc;
  *desc = (CUDA_ARRAY_DESCRIPTOR){whole->Width, whole->Height, whole->Format, whole->NumChannels};
  return CUDA_SUCCESS;
}

CUresult stub_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray array, CUdevice device)
{
  if (!needs || !array || !(array->desc.Flags & UNBACKED)) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = bytes_of(&array->desc), .alignment = stub_step(STEP_ARRAY)};
  return CUDA_SUCCESS;
}

CUresult stub_cuArrayDestroy(CUarray array)
{
  return destroy(array); /* levels end with their mipmap */
}

static CUDA_ARRAY3D_DESCRIPTOR half(CUDA_ARRAY3D_DESCRIPTOR desc)
{
  desc.Width = desc.Width > 1 ? desc.Width / 2 : 1;
  desc.Height = desc.Height > 1 ? desc.Height / 2 : desc.Height;
  desc.Depth = desc.Depth > 1 ? desc.Depth / 2 : desc.Depth;
  return desc;
}

static unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
  unsigned levels = 1;
  for (uint64_t side = desc->Width | desc->Height | desc->Depth; side > 1; side /= 2) levels++;
  return levels;
}

CUresult stub_cuMipmappedArrayCreate(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
  int device = stub_device();
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!mipmap || !desc || !sane(desc) || !levels) return CUDA_ERROR_INVALID_VALUE;
  CUmipmappedArray made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUmipmappedArray_st){.desc = *desc, .device = device};
  made->levels = levels < most_levels(desc) ? levels : most_levels(desc);
  CUDA_ARRAY3D_DESCRIPTOR level = *desc;
  for (unsigned i = 0; i < made->levels; i++, level = half(level)) {
    made->each[i] = (struct CUarray_st){level, device, 0, true};
    if (!(desc->Flags & UNBACKED)) made->bytes += bytes_of(&level);
  }
  if (!stub_take(device, made->bytes)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *mipmap = made;
  return hold(made, device, made->bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned level)
{
  if (!array || !mipmap || level >= mipmap->levels) return CUDA_ERROR_INVALID_VALUE;
  *array = &mipmap->each[level];
  return CUDA_SUCCESS;
}

CUresult stub_cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
  return destroy(mipmap);
}

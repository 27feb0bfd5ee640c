/* Virtual memory management. Memory lives while it has a handle or a mapping, in this process or in one to
 * which it was exported. */
#include "cuda_stub.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x564d4d50u

struct physical {
  uint32_t magic;
  int device; /* -1: memory of the host */
  uint64_t size;
  unsigned handles, maps;
  int share; /* -1: never exported */
  CUmemAllocationProp prop;
  struct physical *next;
};

struct mapping {
  CUdeviceptr at;
  uint64_t size;
  struct physical *memory;
  struct mapping *next;
};

/* The content of a file descriptor or a fabric handle, which is all that a process needs. */
struct exported {
  uint32_t magic, generation;
  int32_t share, device;
  uint64_t size;
  CUmemAllocationProp prop;
};

static struct physical *memories;
static struct mapping *mappings;

void stub_forget_physical(void)
{
  memories = NULL;
  mappings = NULL;
}

/* Objects are locked in all static functions here. */
static struct physical *memory_of(CUmemGenericAllocationHandle handle)
{
  struct physical *each = memories;
  while (each && (CUmemGenericAllocationHandle)(uintptr_t)each != handle) each = each->next;
  return each && each->handles ? each : NULL;
}

static struct physical *add(const struct physical *what)
{
  struct physical *made = malloc(sizeof *made);
  if (!made) return NULL;
  *made = *what;
  made->next = memories;
  memories = made;
  return made;
}

static void free_if_unused(struct physical *memory)
{
  if (memory->handles || memory->maps) return;
  if (memory->share >= 0) stub_drop(memory->share);
  else if (memory->device >= 0) stub_give(memory->device, memory->size);
  struct physical **link = &memories;
  while (*link != memory) link = &(*link)->next;
  *link = memory->next;
  free(memory);
}

CUresult stub_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                            CUmemAllocationGranularity_flags option)
{
  (void)option;
  if (!granularity || !prop) return CUDA_ERROR_INVALID_VALUE;
  *granularity = GRANULE;
  return CUDA_SUCCESS;
}

static CUresult device_of(const CUmemAllocationProp *prop, int *device)
{
  *device = -1;
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS;
  *device = prop->location.id;
  return stub_is_device(*device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult stub_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                          unsigned long long flags)
{
  int device;
  if (!handle || !prop || flags || !size || size % GRANULE) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = device_of(prop, &device);
  if (result != CUDA_SUCCESS) return result;
  if (device >= 0 && !stub_take(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  struct physical made = {MAGIC, device, size, 1, 0, -1, *prop, NULL};
  stub_lock_objects();
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)add(&made);
  stub_unlock_objects();
  return CUDA_SUCCESS;
}

CUresult stub_cuMemRelease(CUmemGenericAllocationHandle handle)
{
  stub_lock_objects();
  struct physical *memory = memory_of(handle);
  if (memory) {
    memory->handles--;
    free_if_unused(memory);
  }
  stub_unlock_objects();
  return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuMemAddressReserve(CUdeviceptr *at, size_t size, size_t alignment, CUdeviceptr wanted,
                                  unsigned long long flags)
{
  (void)alignment, (void)wanted;
  if (!at || flags || !size || size % GRANULE) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  struct stub_block *block = stub_block_make(size, BLOCK_RANGE, false);
  if (block) *at = block->at;
  stub_unlock_objects();
  return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct mapping *mapped(CUdeviceptr at)
{
  struct mapping *each = mappings;
  while (each && (at < each->at || at - each->at >= each->size)) each = each->next;
  return each;
}

CUresult stub_cuMemAddressFree(CUdeviceptr at, size_t size)
{
  stub_lock_objects();
  struct stub_block *block = stub_block_find(at);
  bool ours = block && block->kind == BLOCK_RANGE && block->at == at && block->size == size;
  for (struct mapping *each = mappings; ours && each; each = each->next)
    ours = each->at < at || each->at >= at + size;
  if (ours) stub_block_free(block);
  stub_unlock_objects();
  return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map(CUdeviceptr at, uint64_t size, uint64_t offset, CUmemGenericAllocationHandle handle)
{
  struct physical *memory = memory_of(handle);
  struct stub_block *range = stub_block_find(at);
  if (!memory || !range || range->kind != BLOCK_RANGE || offset) return CUDA_ERROR_INVALID_VALUE;
  if (size != memory->size || at + size > range->at + range->size) return CUDA_ERROR_INVALID_VALUE;
  for (struct mapping *each = mappings; each; each = each->next)
    if (each->at < at + size && at < each->at + each->size) return CUDA_ERROR_INVALID_VALUE;
  struct mapping *made = malloc(sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct mapping){at, size, memory, mappings};
  mappings = made;
  memory->maps++;
  return CUDA_SUCCESS;
}

CUresult stub_cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags)
{
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  CUresult result = map(at, size, offset, handle);
  stub_unlock_objects();
  return result;
}

/* The range must consist of whole mappings. */
static CUresult unmap(CUdeviceptr at, uint64_t size)
{
  uint64_t found = 0;
  for (struct mapping *each = mappings; each; each = each->next)
    if (each->at >= at && each->at + each->size <= at + size) found += each->size;
  if (!size || found != size) return CUDA_ERROR_INVALID_VALUE;
  for (struct mapping **link = &mappings; *link;) {
    struct mapping *each = *link;
    if (each->at < at || each->at >= at + size) {
      link = &each->next;
      continue;
    }
    *link = each->next;
    each->memory->maps--;
    free_if_unused(each->memory);
    free(each);
  }
  return CUDA_SUCCESS;
}

CUresult stub_cuMemUnmap(CUdeviceptr at, size_t size)
{
  stub_lock_objects();
  CUresult result = unmap(at, size);
  stub_unlock_objects();
  return result;
}

CUresult stub_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr at)
{
  (void)location;
  stub_lock_objects();
  bool known = mapped(at) != NULL;
  stub_unlock_objects();
  if (flags) *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at)
{
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  struct mapping *found = mapped((CUdeviceptr)(uintptr_t)at);
  if (found) {
    found->memory->handles++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)found->memory;
  }
  stub_unlock_objects();
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
  stub_lock_objects();
  struct physical *memory = memory_of(handle);
  if (memory && prop) *prop = memory->prop;
  stub_unlock_objects();
  return memory && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A file that its inode does not distinguish from others, as the driver's own device files. */
static int open_pipe(void)
{
  int ends[2];
  char name[32];
  if (pipe2(ends, O_CLOEXEC)) return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
  int both = open(name, O_RDWR | O_CLOEXEC);
  close(ends[0]);
  close(ends[1]);
  return both;
}

static bool read_file(int fd, struct exported *in)
{
  if (pread(fd, in, sizeof *in, 0) == sizeof *in) return true;
  return read(fd, in, sizeof *in) == sizeof *in && write(fd, in, sizeof *in) == sizeof *in;
}

static CUresult give_out(const struct exported *out, void *to, CUmemAllocationHandleType type)
{
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    _Static_assert(sizeof *out <= sizeof(CUmemFabricHandle), "fits");
    memcpy(to, out, sizeof *out);
    return CUDA_SUCCESS;
  }
  int fd = stub_setting("VGPU_STUB_PLAIN_HANDLES", 0) ? open_pipe() : (int)memfd_create("stub-memory", MFD_CLOEXEC);
  if (fd < 0 || write(fd, out, sizeof *out) != sizeof *out) return CUDA_ERROR_OPERATING_SYSTEM;
  *(int *)to = fd;
  return CUDA_SUCCESS;
}

CUresult stub_cuMemExportToShareableHandle(void *to, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags)
{
  stub_lock_objects();
  struct physical *memory = memory_of(handle);
  bool may = memory && to && !flags && (memory->prop.requestedHandleTypes & type) && memory->device >= 0;
  if (may && memory->share < 0) memory->share = stub_share(memory->device, memory->size);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (may && memory->share >= 0) {
    uint32_t generation = stub_state()->share[memory->share].generation;
    struct exported out = {MAGIC, generation, memory->share, memory->device, memory->size, memory->prop};
    result = give_out(&out, to, type);
  }
  stub_unlock_objects();
  return result;
}

/* A process has each memory once, even if it imports it several times. */
static struct physical *import(const struct exported *in)
{
  for (struct physical *each = memories; each; each = each->next)
    if (each->share == in->share) {
      each->handles++;
      return each;
    }
  if (!stub_hold(in->share, in->generation)) return NULL;
  struct physical made = {MAGIC, in->device, in->size, 1, 0, in->share, in->prop, NULL};
  return add(&made);
}

CUresult stub_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from,
                                             CUmemAllocationHandleType type)
{
  struct exported in = {0};
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) memcpy(&in, from, sizeof in);
  else if (!read_file((int)(intptr_t)from, &in)) return CUDA_ERROR_INVALID_VALUE;
  if (in.magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
  stub_lock_objects();
  struct physical *memory = import(&in);
  stub_unlock_objects();
  *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
  return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Contexts: one primary context per card, created contexts, and each thread's stack of contexts. */
#include "cuda_stub.h"

#include <pthread.h>
#include <stdlib.h>

#define DEPTH 64

static pthread_mutex_t objects = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[STUB_DEVICES]; /* NULL: there is none */
static unsigned primary_flags[STUB_DEVICES];
static CUcontext all; /* never freed, so that a stale handle is detected */
static uint64_t contexts_made;
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

void stub_lock_objects(void)
{
  pthread_mutex_lock(&objects);
}

void stub_unlock_objects(void)
{
  pthread_mutex_unlock(&objects);
}

void stub_forget_contexts(void)
{
  for (CUcontext each = all; each; each = each->next) each->alive = false;
  for (int i = 0; i < STUB_DEVICES; i++) primary[i] = NULL;
  depth = 0;
}

bool stub_alive(CUcontext context)
{
  for (CUcontext each = all; each; each = each->next)
    if (each == context) return each->alive;
  return false;
}

CUcontext stub_context(void)
{
  CUcontext now = depth ? stack[depth - 1] : NULL;
  return now && now->alive ? now : NULL;
}

int stub_device(void)
{
  CUcontext now = stub_context();
  return now ? now->device : -1;
}

/* Memory for a context: new, or that of an ended one, if a test sets VGPU_STUB_CONTEXT_ANEW. */
static CUcontext room(void)
{
  CUcontext each = stub_setting("VGPU_STUB_CONTEXT_ANEW", 0) ? all : NULL;
  while (each && each->alive) each = each->next;
  if (each) return each;
  each = calloc(1, sizeof *each);
  if (!each) return NULL;
  each->next = all;
  return all = each;
}

/* Objects are locked. */
static CUresult begin(CUcontext *context, int device, unsigned flags)
{
  uint64_t bytes = stub_setting("VGPU_STUB_CONTEXT_BYTES", 0);
  CUcontext made = stub_take(device, bytes) ? room() : NULL;
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUctx_st){.device = device, .flags = flags, .bytes = bytes, .alive = true, .next = made->next};
  made->id = ++contexts_made;
  *context = made;
  return CUDA_SUCCESS;
}

CUcontext stub_memory_context(void)
{
  CUcontext now = stub_context();
  return now && now->green && stub_setting("VGPU_STUB_GREEN_KEEPS", 0) ? primary[now->device] : now;
}

static void free_if_of(struct stub_block *block, void *context)
{
  if (block->context == context && block->kind != BLOCK_RANGE) stub_release_block(block);
}

/* Its memory ends with it, except the memory of pools and graphs. */
static void end(CUcontext context)
{
  stub_blocks_each(free_if_of, context);
  stub_arrays_end(context);
  stub_modules_end(context);
  stub_give(context->device, context->bytes);
  context->alive = false;
}

CUresult stub_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock_objects();
  CUresult result = primary[device] ? CUDA_SUCCESS : begin(&primary[device], device, primary_flags[device]);
  if (result == CUDA_SUCCESS) {
    primary[device]->primary = true;
    primary[device]->retained++;
    *context = primary[device];
  }
  stub_unlock_objects();
  return result;
}

static CUresult release(CUdevice device, bool reset)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock_objects();
  CUcontext mine = primary[device];
  CUresult result = mine || reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  if (mine && (!--mine->retained || reset)) {
    end(mine);
    primary[device] = NULL;
  }
  stub_unlock_objects();
  return result;
}

CUresult stub_cuDevicePrimaryCtxRelease(CUdevice device) { return release(device, false); }
CUresult stub_cuDevicePrimaryCtxRelease_v2(CUdevice device) { return release(device, false); }
CUresult stub_cuDevicePrimaryCtxReset(CUdevice device) { return release(device, true); }
CUresult stub_cuDevicePrimaryCtxReset_v2(CUdevice device) { return release(device, true); }

CUresult stub_cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags) *flags = primary_flags[device];
  if (active) *active = primary[device] != NULL;
  return CUDA_SUCCESS;
}

CUresult stub_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  primary_flags[device] = flags;
  return CUDA_SUCCESS;
}

CUresult stub_context_make(CUcontext *context, unsigned flags, CUdevice device)
{
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!stub_is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock_objects();
  CUresult result = begin(context, device, flags);
  stub_unlock_objects();
  return result;
}

static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
  if (depth == DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = stub_context_make(context, flags, device);
  if (result == CUDA_SUCCESS) stack[depth++] = *context;
  return result;
}

CUresult stub_cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
  return create(context, flags, device);
}

CUresult stub_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count,
                             unsigned flags, CUdevice device)
{
  (void)affinity, (void)count;
  return create(context, flags, device);
}

CUresult stub_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
  (void)params;
  return create(context, flags, device);
}

CUresult stub_context_end(CUcontext context)
{
  stub_lock_objects();
  bool known = stub_alive(context) && !context->primary;
  if (known) end(context);
  stub_unlock_objects();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult stub_cuCtxDestroy_v2(CUcontext context)
{
  CUresult result = stub_context_end(context);
  if (result == CUDA_SUCCESS && depth && stack[depth - 1] == context) depth--;
  return result;
}

CUresult stub_cuCtxDestroy(CUcontext context) { return stub_cuCtxDestroy_v2(context); }

CUresult stub_cuCtxPushCurrent_v2(CUcontext context)
{
  if (!context || !stub_alive(context) || depth == DEPTH) return CUDA_ERROR_INVALID_CONTEXT;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxPopCurrent_v2(CUcontext *context)
{
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext was = stack[--depth];
  if (context) *context = was;
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxPushCurrent(CUcontext context) { return stub_cuCtxPushCurrent_v2(context); }
CUresult stub_cuCtxPopCurrent(CUcontext *context) { return stub_cuCtxPopCurrent_v2(context); }

CUresult stub_cuCtxSetCurrent(CUcontext context)
{
  if (context && !stub_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (depth) depth--;
  if (context) stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxGetCurrent(CUcontext *context)
{
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = depth ? stack[depth - 1] : NULL;
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxGetDevice(CUdevice *device)
{
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = stub_device();
  return *device < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult stub_cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
  if (!context) return stub_cuCtxGetDevice(device);
  if (!stub_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
  (void)context;
  *version = (unsigned)stub_version();
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxGetFlags(unsigned *flags)
{
  CUcontext now = stub_context();
  if (!now) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = now->flags;
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return stub_context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult synchronise(CUcontext context)
{
  if (!context || !stub_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  STUB_UNSAFE;
  stub_wait_until(context->last_end);
  stub_pools_settle(context->device);
  return CUDA_SUCCESS;
}

CUresult stub_cuCtxSynchronize(void) { return synchronise(stub_context()); }

CUresult stub_cuCtxSynchronize_v2(CUcontext context)
{
  return synchronise(context ? context : stub_context());
}

CUresult stub_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
  (void)flags;
  return stub_alive(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult stub_cuCtxDisablePeerAccess(CUcontext peer)
{
  return stub_alive(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

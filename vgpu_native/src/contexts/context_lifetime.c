/* Ended contexts. The end of a context frees its memory without a call for each pointer, so the charges
 * of that memory end with the context.
 *
 * A context's own memory is charged while it lives, see context_charge.h. */
#include "contexts/code_memory.h"
#include "contexts/context_charge.h"
#include "intercept/current_context.h"
#include "intercept/device_lookup.h"
#include "intercept/nested_calls.h"
#include "memory/charges/allocation_charge.h"
#include "memory/charges/doubtful_charges.h"
#include "memory/granularity/granularity.h"
#include "memory/graph_memory.h"
#include "memory/imports.h"
#include "memory/charges/memory_pools.h"
#include "time/launch_meter.h"
#include "util/cancellation.h"
#include "util/fork_handlers.h"

#define DEVICES 64

/* Held while contexts are created and destroyed: a new context may get the address of a destroyed one,
 * and its memory must stay charged. */
static struct vgpu_lock lock = VGPU_UNLOCKED(VGPU_RANK_CONTEXTS);
static CUcontext primary[DEVICES]; /* the living primary contexts whose creation a hook saw */
static bool watched;

static void forget(void) {
  lock = (struct vgpu_lock)VGPU_UNLOCKED(VGPU_RANK_CONTEXTS);
  for (int i = 0; i < DEVICES; i++) primary[i] = NULL;
}

static void begin_change(void) {
  vgpu_reset_in_children(&watched, forget);
  vgpu_lock(&lock);
}

static CUresult finish(CUresult result) {
  vgpu_contexts_changed();
  vgpu_unlock(&lock);
  vgpu_leave();
  return result;
}

static void context_ended(CUcontext context) {
  vgpu_contexts_changed();
  vgpu_charges_end(&vgpu_memory, context);
  vgpu_charges_end(&vgpu_arrays, context);
  vgpu_imports_end(context);
  vgpu_code_ends(context);
  vgpu_limits_end(context);
  vgpu_context_uncharge(context);
  vgpu_pools_update_charges();
  vgpu_graphs_update_charges();
}

/* What a context's device takes for allocations is measured at once, because then the calls of the program follow
 * one another as the program makes them. */
static void measure_in(CUcontext context) {
  if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return;
  vgpu_granularity_measure(vgpu_current_entry());
  REAL(cuCtxPopCurrent_v2)(&context);
}

/* After the creation of a context, which `end` undoes if it does not fit. */
static CUresult created(struct vgpu_creation *creation, CUresult result, CUcontext *context,
                        CUresult (*end)(CUcontext)) {
  if (!vgpu_creation_end(creation, result, result == CUDA_SUCCESS ? *context : NULL)) {
    end(*context);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS) measure_in(*context);
  return result;
}

/* All functions that create a context. */
#define CREATE(name, parameters, arguments)                                                          \
  EXPORT CUresult CUDAAPI name parameters {                                                          \
    if (!vgpu_enter()) return REAL(name) arguments;                                                  \
    begin_change();                                                                                  \
    struct vgpu_creation creation;                                                                   \
    if (!vgpu_creation_begin(&creation, device, false)) return finish(CUDA_ERROR_OUT_OF_MEMORY);     \
    return finish(created(&creation, REAL(name) arguments, context, REAL(cuCtxDestroy_v2)));         \
  }

CREATE(cuCtxCreate, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3,
       (CUcontext *context, CUexecAffinityParam *params, int count, unsigned flags, CUdevice device),
       (context, params, count, flags, device))
CREATE(cuCtxCreate_v4,
       (CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice device),
       (context, params, flags, device))

#define DESTROY(name)                               \
  EXPORT CUresult CUDAAPI name(CUcontext ctx) {     \
    if (!vgpu_enter()) return REAL(name)(ctx);      \
    begin_change();                                 \
    vgpu_meter_forget_context(ctx);                 \
    CUresult result = REAL(name)(ctx);              \
    if (result == CUDA_SUCCESS) context_ended(ctx); \
    return finish(result);                          \
  }

DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

/* These may or may not end a context. Memory in it stays charged. */
static CUresult maybe_changed(CUresult result) {
  vgpu_contexts_changed();
  return result;
}

EXPORT CUresult CUDAAPI cuCtxDetach(CUcontext ctx) { return maybe_changed(REAL(cuCtxDetach)(ctx)); }


static bool is_active(CUdevice device) {
  unsigned flags;
  int active = 0;
  return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

static CUresult release_again(CUcontext context) {
  CUdevice device = -1;
  CUcontext popped;
  if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
  REAL(cuCtxGetDevice)(&device);
  REAL(cuCtxPopCurrent_v2)(&popped);
  return HAS(cuDevicePrimaryCtxRelease_v2) ? REAL(cuDevicePrimaryCtxRelease_v2)(device)
                                           : REAL(cuDevicePrimaryCtxRelease)(device);
}

/* The first retain creates the context. */
static CUresult retain(CUcontext *context, CUdevice device) {
  struct vgpu_creation creation;
  bool first = device >= 0 && device < DEVICES && !primary[device] && !is_active(device);
  if (!first) return REAL(cuDevicePrimaryCtxRetain)(context, device);
  if (!vgpu_creation_begin(&creation, device, false)) return CUDA_ERROR_OUT_OF_MEMORY;
  return created(&creation, REAL(cuDevicePrimaryCtxRetain)(context, device), context, release_again);
}

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  if (!vgpu_enter()) return REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
  begin_change();
  CUresult result = retain(pctx, dev);
  if (result == CUDA_SUCCESS && dev >= 0 && dev < DEVICES) primary[dev] = *pctx;
  return finish(result);
}

/* NULL: it is unknown, and may be any context. */
static CUcontext primary_of(CUdevice device) {
  return device >= 0 && device < DEVICES ? primary[device] : NULL;
}

/* A primary context lives until its last user releases it. */
static CUresult release_primary(CUresult result, CUdevice device) {
  unsigned flags;
  int active = 1;
  if (result != CUDA_SUCCESS || device < 0 || device >= DEVICES) return result;
  REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active);
  if (active) return result;
  context_ended(primary[device]);
  /* It was created past the hooks: what of the device's memory was its own? */
  if (!primary[device]) vgpu_doubts_settle(vgpu_device_entry(device), NULL, NULL);
  primary[device] = NULL; /* its address may be another context's from now on */
  return result;
}

EXPORT CUresult CUDAAPI cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  if (!vgpu_enter()) return REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags);
  begin_change();
  struct vgpu_creation creation;
  CUcontext context = NULL;
  if (!vgpu_creation_begin(&creation, dev, true)) return finish(CUDA_ERROR_OUT_OF_MEMORY);
  CUresult result = REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags);
  if (result == CUDA_SUCCESS) REAL(cuCtxFromGreenCtx)(&context, *phCtx);
  if (!vgpu_creation_end(&creation, result, context)) {
    REAL(cuGreenCtxDestroy)(*phCtx);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return finish(result);
}

/* Memory of a green context ends with it, or with the primary context: the documentation does not state which. */
EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx) {
  if (!vgpu_enter()) return REAL(cuGreenCtxDestroy)(hCtx);
  begin_change();
  CUcontext context = NULL;
  CUdevice device = -1;
  REAL(cuCtxFromGreenCtx)(&context, hCtx);
  if (context && REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
    CUcontext popped;
    REAL(cuCtxGetDevice)(&device);
    REAL(cuCtxPopCurrent_v2)(&popped);
    vgpu_meter_forget_context(context);
  }
  CUresult result = REAL(cuGreenCtxDestroy)(hCtx);
  if (result == CUDA_SUCCESS && device >= 0) {
    vgpu_doubts_settle(vgpu_device_entry(device), context, primary_of(device));
    vgpu_code_ends(context);
    vgpu_limits_end(context);
    vgpu_context_uncharge(context);
  }
  return finish(result);
}

#define RELEASE(name)                                     \
  EXPORT CUresult CUDAAPI name(CUdevice dev) {            \
    if (!vgpu_enter()) return REAL(name)(dev);            \
    begin_change();                                       \
    vgpu_meter_forget_context(primary_of(dev));           \
    return finish(release_primary(REAL(name)(dev), dev)); \
  }

RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RELEASE(cuDevicePrimaryCtxReset)
RELEASE(cuDevicePrimaryCtxReset_v2)

/* The end of a context ends what lives in it, without a call for each pointer.
 *
 * What a context itself takes is not told before it exists, nor, in a container, by process: it is
 * not charged here but seen by the node's agent, which adds it to what is used beyond the counted. */
#include "intercept/current_context.h"
#include "intercept/hook.h"
#include "memory/charge.h"
#include "memory/graphs.h"
#include "memory/pools.h"
#include "time/meter.h"
#include "util/cancel_shelter.h"
#include "util/fork_handlers.h"

#define DEVICES 64

/* Held while contexts are made and ended: the driver may give the address of one that has ended to a
 * new one, of which nothing must be uncharged. */
static struct vgpu_lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static CUcontext primary[DEVICES]; /* while it lives, as far as it was seen to begin */
static bool watched;

static void forget(void) {
  lock = VGPU_UNLOCKED;
  for (int i = 0; i < DEVICES; i++) primary[i] = NULL;
}

static void begin(void) {
  vgpu_forget_in_children(&watched, forget);
  vgpu_lock(&lock);
}

static CUresult done(CUresult result) {
  vgpu_contexts_changed();
  vgpu_unlock(&lock);
  vgpu_leave();
  return result;
}

static void ended(CUcontext context) {
  vgpu_contexts_changed();
  vgpu_items_end(&vgpu_memory, context);
  vgpu_items_end(&vgpu_arrays, context);
  vgpu_pools_settle();
  vgpu_graphs_settle();
}

/* All functions that make a context. */
#define CREATE(name, parameters, arguments)         \
  EXPORT CUresult CUDAAPI name parameters {         \
    if (!vgpu_enter()) return REAL(name) arguments; \
    begin();                                        \
    return done(REAL(name) arguments);              \
  }

CREATE(cuCtxCreate, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3,
       (CUcontext *context, CUexecAffinityParam *params, int count, unsigned flags, CUdevice device),
       (context, params, count, flags, device))
CREATE(cuCtxCreate_v4,
       (CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice device),
       (context, params, flags, device))

#define DESTROY(name)                                 \
  EXPORT CUresult CUDAAPI name(CUcontext ctx) {       \
    if (!vgpu_enter()) return REAL(name)(ctx);        \
    begin();                                          \
    vgpu_meter_forget(ctx);                           \
    CUresult result = REAL(name)(ctx);                \
    if (result == CUDA_SUCCESS) ended(ctx);           \
    return done(result);                              \
  }

DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

/* Of these it is not known whether anything has ended. What lived there stays charged. */
static CUresult maybe_ended(CUresult result) {
  vgpu_contexts_changed();
  return result;
}

EXPORT CUresult CUDAAPI cuCtxDetach(CUcontext ctx) { return maybe_ended(REAL(cuCtxDetach)(ctx)); }

EXPORT CUresult CUDAAPI cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return maybe_ended(REAL(cuGreenCtxDestroy)(hCtx));
}

EXPORT CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  if (!vgpu_enter()) return REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
  begin();
  CUresult result = REAL(cuDevicePrimaryCtxRetain)(pctx, dev);
  if (result == CUDA_SUCCESS && dev >= 0 && dev < DEVICES) primary[dev] = *pctx;
  return done(result);
}

/* NULL: it is not known here, and may be any. */
static CUcontext primary_of(CUdevice device) {
  return device >= 0 && device < DEVICES ? primary[device] : NULL;
}

/* A primary context lives until its last user lets it go. */
static CUresult released(CUresult result, CUdevice device) {
  unsigned flags;
  int active = 1;
  if (result != CUDA_SUCCESS || device < 0 || device >= DEVICES) return result;
  REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active);
  if (active) return result;
  ended(primary[device]);
  primary[device] = NULL; /* its address may be another context's from now on */
  return result;
}

#define RELEASE(name)                                        \
  EXPORT CUresult CUDAAPI name(CUdevice dev) {               \
    if (!vgpu_enter()) return REAL(name)(dev);               \
    begin();                                                 \
    vgpu_meter_forget(primary_of(dev));                      \
    return done(released(REAL(name)(dev), dev));             \
  }

RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RELEASE(cuDevicePrimaryCtxReset)
RELEASE(cuDevicePrimaryCtxReset_v2)

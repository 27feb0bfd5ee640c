/* The current context of a thread, without a driver call each time.
 *
 * A thread changes its context by functions that are hooked here. Functions that create and destroy
 * contexts are counted. In case there are other ways, the driver is called again after
 * CACHED_READS_MAX reads. With several devices it is called each time, because memory that is charged
 * to the wrong device would exceed the limit of the right one. */
#include "intercept/current_context.h"

#include "intercept/device_lookup.h"
#include "intercept/nested_calls.h"
#include "vgpu.h"

enum { CACHED_READS_MAX = 64 };

static unsigned contexts_changes;

void vgpu_contexts_changed(void) { __atomic_add_fetch(&contexts_changes, 1, __ATOMIC_ACQ_REL); }

struct cache {
  struct vgpu_current_context context;
  unsigned changes;
  unsigned left; /* reads until the driver is called again */
  int recent;    /* the last entry plus one */
};

static __thread struct cache cache __attribute__((tls_model("initial-exec")));

/* Whether an entry stays that of its device. A denied device may be given later. */
static bool is_known(int entry) { return entry >= 0 && entry != VGPU_DENIED; }

/* Read the context from the driver, and the device only if the context is another one. */
static const struct vgpu_current_context *refresh(unsigned changes) {
  CUcontext context = NULL;
  if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) context = NULL;
  bool same = context && context == cache.context.context && changes == cache.changes;
  if (!same || !is_known(cache.context.entry)) cache.context.entry = context ? vgpu_current_entry() : -1;
  cache.context.context = context;
  cache.changes = changes;
  cache.left = is_known(cache.context.entry) && vgpu_has_one_device() ? CACHED_READS_MAX : 0;
  return &cache.context;
}

const struct vgpu_current_context *vgpu_current_context(void) {
  unsigned changes = __atomic_load_n(&contexts_changes, __ATOMIC_ACQUIRE);
  if (!cache.left || changes != cache.changes) return refresh(changes);
  cache.left--;
  return &cache.context;
}

int vgpu_recent_entry(bool ask) {
  if (!ask && cache.recent > 0) return cache.recent - 1;
  int entry = vgpu_current_entry();
  cache.recent = is_known(entry) ? entry + 1 : 0;
  return entry;
}

#define CHANGES(name, parameter, argument)  \
  EXPORT CUresult CUDAAPI name(parameter) { \
    cache.recent = 0;                       \
    cache.left = 0;                         \
    return REAL(name)(argument);            \
  }

CHANGES(cuCtxSetCurrent, CUcontext ctx, ctx)
CHANGES(cuCtxPushCurrent, CUcontext ctx, ctx)
CHANGES(cuCtxPushCurrent_v2, CUcontext ctx, ctx)
CHANGES(cuCtxPopCurrent, CUcontext *pctx, pctx)
CHANGES(cuCtxPopCurrent_v2, CUcontext *pctx, pctx)

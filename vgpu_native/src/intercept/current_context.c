/* Where a thread is, without asking the driver each time.
 *
 * A thread changes its context by functions that are hooked here, and contexts come and go by others
 * that are counted. Should there be a way that nobody sees, the driver is asked again after RECALLS
 * times; and where there are several devices it is asked each time, as what is charged to the wrong
 * one would be beyond the limit of the right one. */
#include "intercept/current_context.h"

#include "intercept/device_lookup.h"
#include "intercept/hook.h"

enum { RECALLS = 64 };

static unsigned contexts_changes;

void vgpu_contexts_changed(void) { __atomic_add_fetch(&contexts_changes, 1, __ATOMIC_ACQ_REL); }

struct memory {
  struct vgpu_here here;
  unsigned changes;
  unsigned left; /* so many times the driver need not be asked */
  int recent;    /* the entry that was used last, plus one */
};

static __thread struct memory memory __attribute__((tls_model("initial-exec")));

/* The context is asked for, and only of another one than before also the device. */
static const struct vgpu_here *look(unsigned changes) {
  CUcontext context = NULL;
  if (REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS) context = NULL;
  bool same = context && context == memory.here.context && changes == memory.changes;
  if (!same || memory.here.entry < 0) memory.here.entry = context ? vgpu_entry_now() : -1;
  memory.here.context = context;
  memory.changes = changes;
  memory.left = memory.here.entry >= 0 && vgpu_one_device() ? RECALLS : 0;
  return &memory.here;
}

const struct vgpu_here *vgpu_here(void) {
  unsigned changes = __atomic_load_n(&contexts_changes, __ATOMIC_ACQUIRE);
  if (!memory.left || changes != memory.changes) return look(changes);
  memory.left--;
  return &memory.here;
}

int vgpu_entry_recent(bool ask) {
  if (!ask && memory.recent > 0) return memory.recent - 1;
  int entry = vgpu_entry_now();
  memory.recent = entry + 1;
  return entry;
}

#define CHANGES(name, parameter, argument)  \
  EXPORT CUresult CUDAAPI name(parameter) { \
    memory.recent = 0;                      \
    memory.left = 0;                        \
    return REAL(name)(argument);            \
  }

CHANGES(cuCtxSetCurrent, CUcontext ctx, ctx)
CHANGES(cuCtxPushCurrent, CUcontext ctx, ctx)
CHANGES(cuCtxPushCurrent_v2, CUcontext ctx, ctx)
CHANGES(cuCtxPopCurrent, CUcontext *pctx, pctx)
CHANGES(cuCtxPopCurrent_v2, CUcontext *pctx, pctx)

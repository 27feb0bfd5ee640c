#include "memory/graph_memory.h"

#include <stdlib.h>

#include "intercept/nested_calls.h"
#include "memory/graph_memory_need.h"
#include "memory/granularity/growth_step.h"
#include "memory/charges/memory_pools.h"
#include "util/arithmetic.h"
#include "util/assert.h"
#include "util/cancellation.h"
#include "util/fork_handlers.h"
#include "util/handle_map.h"

/* The memory that is reserved during a launch. */
struct graph_hold {
  struct graph_need *need;
  uint64_t held[VGPU_DEVICES_MAX];
  uint64_t launch_number[VGPU_DEVICES_MAX];
};

/* A device of which graphs have memory. */
static struct card {
  struct vgpu_lock lock;
  uint64_t charged;
  uint64_t step;     /* by which the driver enlarges it, see growth_step.h */
  uint64_t launches; /* of graphs that need memory of it, begun so far */
  CUdevice device;
} cards[VGPU_DEVICES_MAX] = {[0 ... VGPU_DEVICES_MAX - 1] = {.lock = VGPU_UNLOCKED(VGPU_RANK_GRAPHS)}};

static struct vgpu_map needs; /* executable graph to its need */
static bool watched;
bool vgpu_graphs_had_memory;

static void forget(void) {
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    cards[i] = (struct card){.lock = VGPU_UNLOCKED(VGPU_RANK_GRAPHS)};
  }
  vgpu_graphs_had_memory = false;
}

/* Remember the devices that a graph needs memory of. */
static void store_devices(const struct graph_need *need) {
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    if (need->bytes[i]) cards[i].device = need->device[i];
  }
}

static cuuint64_t attribute(const struct card *card, CUgraphMem_attribute which, cuuint64_t otherwise) {
  cuuint64_t bytes = 0;
  CUresult result = REAL(cuDeviceGetGraphMemAttribute)(card->device, which, &bytes);
  return result == CUDA_SUCCESS ? bytes : otherwise;
}

static uint64_t kept(const struct card *card) {
  return attribute(card, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, card->charged);
}

/* Charge the memory that graphs keep of a device, of which `held` is charged already. Returns it. */
static uint64_t update_charge(int entry, uint64_t held) {
  VGPU_ASSERT(entry >= 0 && entry < VGPU_DEVICES_MAX);
  struct card *card = &cards[entry];
  vgpu_lock(&card->lock);
  uint64_t now = kept(card), before = card->charged + held;
  if (now > card->charged) vgpu_growth_learn(&card->step, now, now - card->charged, held);
  if (now > before) vgpu_reserve_forced(entry, now - before);
  if (now < before) vgpu_release(entry, before - now);
  __atomic_store_n(&card->charged, now, __ATOMIC_RELAXED);
  vgpu_unlock(&card->lock);
  return now;
}

void vgpu_graphs_update_charges(void) {
  if (!vgpu_graphs_have_memory()) return;
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    if (__atomic_load_n(&cards[i].charged, __ATOMIC_RELAXED)) update_charge(i, 0);
  }
}

/* Whether this launch takes no more memory: the memory of the graph's last launch is still kept, and no
 * other graph can have taken it since. */
static bool is_kept(struct graph_hold *hold, int entry) {
  struct card *card = &cards[entry];
  uint64_t last = hold->need->kept[entry], before = __atomic_fetch_add(&card->launches, 1, __ATOMIC_ACQ_REL);
  hold->launch_number[entry] = before + 1;
  return last && before == hold->need->launch_number[entry] && kept(card) >= last;
}

static bool has_room(int entry, uint64_t bytes) {
  const struct card *card = &cards[entry];
  uint64_t used = attribute(card, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, UINT64_MAX), all = kept(card);
  return all > used && all - used >= bytes;
}

/* Reserve the memory that a graph may take of one device. If it does not fit, graphs and pools give
 * back unused memory first. */
static bool hold_one(struct graph_hold *hold, int entry) {
  uint64_t bytes = vgpu_rounded(hold->need->bytes[entry], vgpu_growth_step(&cards[entry].step));
  if (!bytes || is_kept(hold, entry)) return true;
  bool done = vgpu_reserve(entry, bytes);
  if (!done && has_room(entry, hold->need->bytes[entry])) return true;
  if (!done) {
    REAL(cuDeviceGraphMemTrim)(cards[entry].device);
    update_charge(entry, 0);
    vgpu_pools_reclaim(entry);
    done = vgpu_reserve(entry, bytes);
  }
  hold->held[entry] = done ? bytes : 0;
  return done;
}

static bool hold_all(struct graph_hold *hold) {
  if (hold->need->bytes[VGPU_DENIED]) return false;
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    if (hold_one(hold, i)) continue;
    while (i--) vgpu_release(i, hold->held[i]);
    return false;
  }
  return true;
}

static void update_charges(struct graph_hold *hold, CUresult result) {
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    VGPU_ASSERT(!hold->held[i] || hold->need->bytes[i]);
    if (!hold->need->bytes[i]) continue;
    uint64_t now = update_charge(i, hold->held[i]);
    hold->need->kept[i] = result == CUDA_SUCCESS ? now : 0;
    hold->need->launch_number[i] = hold->launch_number[i];
  }
}

/* `launch` is a hook, too, so it is called outside of this one. */
static CUresult launch_with(struct graph_need *need, CUresult (*launch)(CUgraphExec, CUstream),
                            CUgraphExec exec, CUstream stream) {
  struct graph_hold hold = {.need = need};
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  int cancel_state = vgpu_defer_cancellation();
  bool fits = hold_all(&hold);
  vgpu_leave();
  if (fits) result = launch(exec, stream);
  if (fits && vgpu_enter()) {
    update_charges(&hold, result);
    vgpu_leave();
  }
  vgpu_restore_cancellation(cancel_state);
  return result;
}

CUresult vgpu_graph_launch(CUresult (*launch)(CUgraphExec, CUstream), CUgraphExec exec, CUstream stream) {
  struct vgpu_item item;
  if (!vgpu_graphs_have_memory() || !vgpu_enter()) return launch(exec, stream);
  if (vgpu_map_find(&needs, (uintptr_t)exec, &item))
    return launch_with((struct graph_need *)(uintptr_t)item.note, launch, exec, stream);
  vgpu_leave();
  return launch(exec, stream);
}

/* Instantiating may upload the graph at once, so the need of the graph is reserved meanwhile. */
struct making {
  struct graph_hold hold;
  struct graph_need *need;
};

/* False: the graph does not fit, or there was no memory to compute its need. */
static bool begin_instantiate(struct making *making, CUgraph graph, bool uploads) {
  *making = (struct making){.need = NULL};
  vgpu_reset_in_children(&watched, forget);
  if (!vgpu_graph_need(graph, &making->need)) return false;
  if (!making->need) return true;
  store_devices(making->need);
  if (!uploads) return true;
  making->hold.need = making->need;
  if (hold_all(&making->hold)) return true;
  free(making->need);
  return false;
}

static CUresult end_instantiate(struct making *making, CUresult result, const CUgraphExec *exec) {
  struct vgpu_item old;
  if (!making->need) return result;
  if (making->hold.need) update_charges(&making->hold, result);
  if (result != CUDA_SUCCESS) {
    free(making->need);
    return result;
  }
  struct vgpu_item item = {(uintptr_t)*exec, 0, (uintptr_t)making->need};
  if (!vgpu_map_put(&needs, item, &old)) {
    free(making->need);
    REAL(cuGraphExecDestroy)(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (old.key) free((void *)(uintptr_t)old.note);
  __atomic_store_n(&vgpu_graphs_had_memory, true, __ATOMIC_RELAXED);
  return result;
}

/* All functions that instantiate a graph: name, parameters, arguments, whether it uploads. */
#define INSTANTIATE(name, parameters, arguments, uploads)         \
  EXPORT CUresult CUDAAPI name parameters {                       \
    if (!vgpu_enter()) return REAL(name) arguments;               \
    struct making now;                                            \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                   \
    int cancel_state = vgpu_defer_cancellation();                 \
    if (begin_instantiate(&now, graph, uploads)) {                \
      result = end_instantiate(&now, REAL(name) arguments, exec); \
    }                                                             \
    vgpu_restore_cancellation(cancel_state);                      \
    vgpu_leave();                                                 \
    return result;                                                \
  }

INSTANTIATE(cuGraphInstantiate,
            (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size),
            (exec, graph, node, log, size), false)
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size),
            (exec, graph, node, log, size), false)
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec *exec, CUgraph graph, unsigned long long flags),
            (exec, graph, flags), false)

static bool uploads(const CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  return params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
}

INSTANTIATE(cuGraphInstantiateWithParams,
            (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
            (exec, graph, params), uploads(params))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
            (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
            (exec, graph, params), uploads(params))

#define UPLOAD(name)                                                \
  EXPORT CUresult CUDAAPI name(CUgraphExec exec, CUstream stream) { \
    return vgpu_graph_launch(REAL(name), exec, stream);             \
  }

UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

EXPORT CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec) {
  if (!vgpu_enter()) return REAL(cuGraphExecDestroy)(hGraphExec);
  struct vgpu_item item, old;
  bool ours = vgpu_map_take(&needs, (uintptr_t)hGraphExec, &item);
  CUresult result = REAL(cuGraphExecDestroy)(hGraphExec);
  if (ours && result != CUDA_SUCCESS) vgpu_map_put(&needs, item, &old);
  if (ours && result == CUDA_SUCCESS) {
    free((void *)(uintptr_t)item.note);
    vgpu_graphs_update_charges();
  }
  vgpu_leave();
  return result;
}

EXPORT CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  if (!vgpu_enter()) return REAL(cuDeviceGraphMemTrim)(device);
  CUresult result = REAL(cuDeviceGraphMemTrim)(device);
  vgpu_graphs_update_charges();
  vgpu_leave();
  return result;
}

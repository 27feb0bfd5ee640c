/* The memory that a graph needs: the allocations of its nodes, and of the graphs in it. Memory that the
 * graph frees again may be used twice, so this is the most that it can take. */
#include "memory/graph_memory_need.h"

#include <stdlib.h>

#include "intercept/device_lookup.h"
#include "util/arithmetic.h"

#define STEP (2ULL << 20)
#define DEPTH_MAX 8 /* of graphs in graphs; CUDA itself allows fewer */

/* A graph that cannot be read may need any amount, so it is not launched. */
static void count_unreadable(struct graph_need *need) { need->bytes[VGPU_DENIED] = 1; }

static void count_allocation(struct graph_need *need, CUgraphNode node) {
  CUDA_MEM_ALLOC_NODE_PARAMS params;
  if (REAL(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS) return count_unreadable(need);
  if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  int entry = vgpu_device_entry(params.poolProps.location.id);
  if (entry < 0) return;
  uint64_t bytes = vgpu_rounded(params.bytesize, STEP);
  if (__builtin_add_overflow(need->bytes[entry], bytes, &need->bytes[entry])) {
    need->bytes[entry] = UINT64_MAX;
  }
  if (entry != VGPU_DENIED) need->device[entry] = params.poolProps.location.id;
}

static bool count(struct graph_need *need, CUgraph graph, unsigned depth);

static bool count_node(struct graph_need *need, CUgraphNode node, unsigned depth) {
  CUgraphNodeType type;
  CUgraph inner;
  if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return count_unreadable(need), true;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) count_allocation(need, node);
  if (type != CU_GRAPH_NODE_TYPE_GRAPH) return true;
  if (REAL(cuGraphChildGraphNodeGetGraph)(node, &inner) != CUDA_SUCCESS) return count_unreadable(need), true;
  return count(need, inner, depth - 1);
}

static bool count(struct graph_need *need, CUgraph graph, unsigned depth) {
  size_t nodes = 0;
  if (!depth || REAL(cuGraphGetNodes)(graph, NULL, &nodes) != CUDA_SUCCESS) return count_unreadable(need), true;
  if (!nodes) return true;
  CUgraphNode *node = calloc(nodes, sizeof *node);
  bool done = node != NULL;
  if (done && REAL(cuGraphGetNodes)(graph, node, &nodes) != CUDA_SUCCESS) count_unreadable(need), nodes = 0;
  for (size_t i = 0; done && i < nodes; i++) done = count_node(need, node[i], depth);
  free(node);
  return done;
}

bool vgpu_graph_need(CUgraph graph, struct graph_need **need) {
  bool any = false;
  *need = calloc(1, sizeof **need);
  bool done = *need && count(*need, graph, DEPTH_MAX);
  for (int i = 0; done && i <= VGPU_DEVICES_MAX; i++) any |= (*need)->bytes[i] != 0;
  if (any) return true;
  free(*need);
  *need = NULL;
  return done;
}

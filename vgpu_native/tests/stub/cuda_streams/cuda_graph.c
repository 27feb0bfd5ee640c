/* Graphs: nodes in the order in which they were added; only their time and memory count. */
#include "cuda_graph.h"

#include <stdlib.h>

#define MAGIC 0x47524150u

CUgraph stub_graph_make(void)
{
  CUgraph made = calloc(1, sizeof *made);
  if (made) made->magic = MAGIC;
  return made;
}

CUresult stub_graph_add(CUgraph graph, struct CUgraphNode_st what, CUgraphNode *node)
{
  if (!graph || graph->magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode made = malloc(sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *made = what;
  made->graph = graph;
  made->next = NULL;
  stub_lock_objects();
  CUgraphNode *link = graph->last ? &graph->last->next : &graph->first;
  *link = graph->last = made;
  graph->count++;
  stub_unlock_objects();
  if (node) *node = made;
  return CUDA_SUCCESS;
}

void stub_graph_kernel(CUgraph graph, uint64_t ns)
{
  stub_graph_add(graph, (struct CUgraphNode_st){.type = CU_GRAPH_NODE_TYPE_KERNEL, .ns = ns}, NULL);
}

CUresult stub_cuGraphCreate(CUgraph *graph, unsigned flags)
{
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  *graph = stub_graph_make();
  return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Executable graphs may use its nodes, so the nodes stay. */
CUresult stub_cuGraphDestroy(CUgraph graph)
{
  if (!graph || graph->magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
  graph->magic = 0;
  return CUDA_SUCCESS;
}

CUresult stub_cuGraphClone(CUgraph *clone, CUgraph graph)
{
  CUresult result = stub_cuGraphCreate(clone, 0);
  for (CUgraphNode each = graph->first; each && result == CUDA_SUCCESS; each = each->next)
    result = stub_graph_add(*clone, *each, NULL);
  return result;
}

CUresult stub_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
  if (!graph || graph->magic != MAGIC || !count) return CUDA_ERROR_INVALID_VALUE;
  size_t at = 0;
  for (CUgraphNode each = graph->first; nodes && each && at < *count; each = each->next) nodes[at++] = each;
  *count = nodes ? at : graph->count;
  return CUDA_SUCCESS;
}

CUresult stub_cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
  if (!node || !child || node->type != CU_GRAPH_NODE_TYPE_GRAPH) return CUDA_ERROR_INVALID_VALUE;
  *child = node->child;
  return CUDA_SUCCESS;
}

CUresult stub_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
  if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

/* The common part of the functions that add a node. */
#define ADD(name, parameters, ...)                                                        \
  CUresult stub_cuGraphAdd##name(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, \
                                 size_t count parameters)                                 \
  {                                                                                       \
    (void)after, (void)count;                                                             \
    return stub_graph_add(graph, (struct CUgraphNode_st){__VA_ARGS__}, node);             \
  }
#define AND(...) , __VA_ARGS__

ADD(KernelNode_v2, AND(const CUDA_KERNEL_NODE_PARAMS *params), .type = CU_GRAPH_NODE_TYPE_KERNEL,
    .ns = stub_kernel_time(params->gridDimX))
ADD(KernelNode, AND(const CUDA_KERNEL_NODE_PARAMS_v1 *params), .type = CU_GRAPH_NODE_TYPE_KERNEL,
    .ns = stub_kernel_time(params->gridDimX))
ADD(MemcpyNode, AND(const CUDA_MEMCPY3D *params, CUcontext context), .type = CU_GRAPH_NODE_TYPE_MEMCPY)
ADD(MemsetNode, AND(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context),
    .type = CU_GRAPH_NODE_TYPE_MEMSET)
ADD(HostNode, AND(const CUDA_HOST_NODE_PARAMS *params), .type = CU_GRAPH_NODE_TYPE_HOST)
ADD(ChildGraphNode, AND(CUgraph child), .type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child)
ADD(EmptyNode, , .type = CU_GRAPH_NODE_TYPE_EMPTY)
ADD(EventRecordNode, AND(CUevent event), .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD)
ADD(EventWaitNode, AND(CUevent event), .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT)

CUresult stub_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  (void)after, (void)count;
  if (!params || !params->bytesize || !stub_is_device(params->poolProps.location.id))
    return CUDA_ERROR_INVALID_VALUE;
  return stub_graph_alloc(graph, params->poolProps.location.id, round_up(params->bytesize, 512),
                          &params->dptr, node);
}

CUresult stub_cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                    CUdeviceptr at)
{
  (void)after, (void)count;
  return stub_graph_free(graph, at, node);
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, CUgraphNodeParams *params)
{
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  struct CUgraphNode_st what = {.type = params->type};
  switch (params->type) {
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    return stub_graph_alloc(graph, params->alloc.poolProps.location.id, round_up(params->alloc.bytesize, 512),
                            &params->alloc.dptr, node);
  case CU_GRAPH_NODE_TYPE_MEM_FREE: return stub_graph_free(graph, params->free.dptr, node);
  case CU_GRAPH_NODE_TYPE_KERNEL: what.ns = stub_kernel_time(params->kernel.gridDimX); break;
  case CU_GRAPH_NODE_TYPE_GRAPH: what.child = params->graph.graph; break;
  default: break;
  }
  return stub_graph_add(graph, what, node);
}

CUresult stub_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                             CUgraphNodeParams *params)
{
  (void)after, (void)count;
  return add_any(node, graph, params);
}

CUresult stub_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
  (void)after, (void)edges, (void)count;
  return add_any(node, graph, params);
}

CUresult stub_cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
  return stub_cuGraphAddNode_v2(node, graph, after, edges, count, params);
}

CUresult stub_cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
  if (!node || !params) return CUDA_ERROR_INVALID_VALUE;
  node->ns = stub_kernel_time(params->gridDimX);
  return CUDA_SUCCESS;
}

/* Executable graphs and their launches: each is a copy of the nodes, so that the graph may change or end. */
#include "cuda_graph.h"

#include <stdlib.h>

#define MAGIC 0x45584543u

struct step {
  CUgraphNode node;
  CUgraphNodeType type;
  uint64_t ns;
  CUdeviceptr at;
  bool disabled;
};

struct CUgraphExec_st {
  uint32_t magic;
  cuuint64_t flags;
  size_t count;
  struct step *steps;
};

static size_t count_of(CUgraph graph)
{
  size_t count = 0;
  for (CUgraphNode each = graph->first; each; each = each->next)
    count += each->child ? count_of(each->child) : 1;
  return count;
}

static struct step *copy(CUgraph graph, struct step *to)
{
  for (CUgraphNode each = graph->first; each; each = each->next) {
    if (each->child) to = copy(each->child, to);
    else *to++ = (struct step){each, each->type, each->ns, each->at, false};
  }
  return to;
}

static CUresult prepare(CUgraphExec exec, CUgraph graph)
{
  size_t count = count_of(graph);
  struct step *steps = calloc(count + 1, sizeof *steps);
  if (!steps) return CUDA_ERROR_OUT_OF_MEMORY;
  copy(graph, steps);
  free(exec->steps);
  exec->steps = steps;
  exec->count = count;
  return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, cuuint64_t flags)
{
  if (!exec || !graph) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec made = calloc(1, sizeof *made);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made->magic = MAGIC;
  made->flags = flags;
  *exec = made;
  return prepare(made, graph);
}

CUresult stub_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
  return instantiate(exec, graph, flags);
}

CUresult stub_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  params->hErrNode_out = NULL;
  return instantiate(exec, graph, params->flags);
}

CUresult stub_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *text, size_t length)
{
  if (node) *node = NULL;
  if (text && length) *text = 0;
  return instantiate(exec, graph, 0);
}

CUresult stub_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *text, size_t length)
{
  return stub_cuGraphInstantiate(exec, graph, node, text, length);
}

CUresult stub_cuGraphExecDestroy(CUgraphExec exec)
{
  if (!exec || exec->magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
  exec->magic = 0;
  free(exec->steps);
  free(exec);
  return CUDA_SUCCESS;
}

static bool frees(CUgraphExec exec, CUdeviceptr at)
{
  for (size_t i = 0; i < exec->count; i++)
    if (exec->steps[i].type == CU_GRAPH_NODE_TYPE_MEM_FREE && exec->steps[i].at == at) return true;
  return false;
}

/* Unfreed memory of the last launch forbids another launch, or is freed by it. */
static CUresult clear(CUgraphExec exec)
{
  for (size_t i = 0; i < exec->count; i++) {
    struct step *step = &exec->steps[i];
    bool left = step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && stub_graph_memory_live(step->at);
    if (!left) continue;
    if (!(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) && !frees(exec, step->at))
      return CUDA_ERROR_INVALID_VALUE;
    stub_graph_memory_end(step->at);
  }
  return CUDA_SUCCESS;
}

static CUresult take_memory(CUgraphExec exec)
{
  stub_lock_objects();
  CUresult result = clear(exec);
  for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++) {
    struct step *step = &exec->steps[i];
    if (step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !stub_graph_memory_begin(step->at))
      result = CUDA_ERROR_OUT_OF_MEMORY;
    if (step->type == CU_GRAPH_NODE_TYPE_MEM_FREE) stub_graph_memory_end(step->at);
  }
  stub_unlock_objects();
  return result;
}

CUresult stub_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
  if (!exec || exec->magic != MAGIC) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = take_memory(exec);
  for (size_t i = 0; i < exec->count && result == CUDA_SUCCESS; i++) {
    struct step *step = &exec->steps[i];
    if (step->type == CU_GRAPH_NODE_TYPE_KERNEL && !step->disabled) result = stub_launch(stream, 1, step->ns);
  }
  return result;
}

CUresult stub_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
  return exec && exec->magic == MAGIC && stub_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
  if (!exec || exec->magic != MAGIC || !graph) return CUDA_ERROR_INVALID_VALUE;
  bool same = count_of(graph) == exec->count;
  if (info) *info = (CUgraphExecUpdateResultInfo){.result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                                 : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  return same ? prepare(exec, graph) : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

static struct step *step_of(CUgraphExec exec, CUgraphNode node)
{
  for (size_t i = 0; exec && exec->magic == MAGIC && i < exec->count; i++)
    if (exec->steps[i].node == node) return &exec->steps[i];
  return NULL;
}

CUresult stub_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS *params)
{
  struct step *step = step_of(exec, node);
  if (!step || !params) return CUDA_ERROR_INVALID_VALUE;
  step->ns = stub_kernel_time(params->gridDimX);
  return CUDA_SUCCESS;
}

CUresult stub_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
  struct step *step = step_of(exec, node);
  if (!step) return CUDA_ERROR_INVALID_VALUE;
  step->disabled = !enabled;
  return CUDA_SUCCESS;
}

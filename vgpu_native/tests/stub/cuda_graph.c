/* Graphs: a list of nodes, of which only time and memory count. */
#include "cuda_stub.h"

bool stub_capturing(CUstream stream) { return stream->capture != NULL; }
CUgraph stub_capture_graph(CUstream stream) { return stream->capture; }
void stub_graph_kernel(CUgraph graph, uint64_t ns) { (void)graph, (void)ns; }
CUresult stub_graph_alloc(CUgraph graph, int device, uint64_t bytes, CUdeviceptr *at, CUgraphNode *node)
{ (void)graph, (void)device, (void)bytes, (void)at, (void)node; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult stub_graph_free(CUgraph graph, CUdeviceptr at, CUgraphNode *node)
{ (void)graph, (void)at, (void)node; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult stub_graph_release(struct stub_block *block) { (void)block; return CUDA_ERROR_NOT_SUPPORTED; }

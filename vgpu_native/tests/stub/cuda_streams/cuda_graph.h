/* The content of graphs. */
#pragma once

#include "cuda_stub.h"

struct CUgraphNode_st {
  CUgraphNodeType type;
  uint64_t ns;    /* of a kernel */
  CUdeviceptr at; /* of memory that is allocated or freed */
  CUgraph child;
  CUgraph graph;
  CUgraphNode next;
};

struct CUgraph_st {
  uint32_t magic;
  size_t count;
  CUgraphNode first, last;
};

CUresult stub_graph_add(CUgraph graph, struct CUgraphNode_st what, CUgraphNode *node);

/* Begin and end the life of a graph's allocation. False: the card is full. */
bool stub_graph_memory_begin(CUdeviceptr at);
void stub_graph_memory_end(CUdeviceptr at);
bool stub_graph_memory_live(CUdeviceptr at);

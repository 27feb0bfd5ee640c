/* without_memory WHAT: call the driver while the heap is short for a moment, under a limit of 100 MiB. */
#include <dlfcn.h>

#include "allocators.h"

static unsigned failing; /* the number of the call of calloc from now that fails; 0: none */
extern void *__libc_calloc(size_t count, size_t size);

/* Replaces the C library's function in all libraries. */
__attribute__((visibility("default"))) void *calloc(size_t count, size_t size) {
  return failing && !--failing ? NULL : __libc_calloc(count, size);
}

/* The function is the library's hook nevertheless. */
static void procaddress(void) {
  void *found = NULL, *hook = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
  failing = 1;
  CUresult result = cuGetProcAddress_v2("cuMemAlloc", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
  failing = 0;
  CHECK(result == CUDA_SUCCESS && found == hook);
}

/* A graph is not instantiated while its need is unknown. */
static void graph(void) {
  CUgraph graph;
  CUgraphNode node;
  CUgraphExec exec;
  CUDA_MEM_ALLOC_NODE_PARAMS params = {
      .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
      .bytesize = 120 * MIB};
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
  for (unsigned call = 1; call < 10; call++) {
    failing = call;
    CUresult result = cuGraphInstantiateWithFlags(&exec, graph, 0);
    failing = 0;
    if (result != CUDA_SUCCESS) continue;
    CHECK(cuGraphLaunch(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuGraphExecDestroy(exec));
  }
  CHECK(physical() == 0 && charged() == 0);
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  begin(0);
  if (!strcmp(arguments[1], "graph")) graph();
  else procaddress();
  return 0;
}

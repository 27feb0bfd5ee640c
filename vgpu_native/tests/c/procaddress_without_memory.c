/* Ask the driver for a function while the heap is exhausted: it is the library's hook all the same. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

static int exhausted;
extern void *__libc_calloc(size_t count, size_t size);

/* Taken instead of the C library's by all that is loaded. */
__attribute__((visibility("default"))) void *calloc(size_t count, size_t size) {
  return exhausted ? NULL : __libc_calloc(count, size);
}

int main(void) {
  void *found = NULL;
  void *hook = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
  if (cuInit(0) != CUDA_SUCCESS) return 2;
  exhausted = 1;
  CUresult result = cuGetProcAddress("cuMemAlloc", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
  exhausted = 0;
  if (result == CUDA_SUCCESS && found == hook) return 0;
  fprintf(stderr, "cuGetProcAddress answered %d, %p and not %p\n", (int)result, found, hook);
  return 1;
}

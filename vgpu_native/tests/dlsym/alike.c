/* A library that is not the driver, with names like the driver's, or the same names. */
#define ALIKE(name) \
  void name(void) {}
ALIKE(cuMemAlloc_v2)
ALIKE(cudaMalloc)
ALIKE(cublasCreate_v2)
ALIKE(cudnnCreate)
ALIKE(curl_easy_init)
ALIKE(cu)
ALIKE(c)
ALIKE(n)
ALIKE(nvml)
ALIKE(nvmlDeviceGetMemoryInfo)

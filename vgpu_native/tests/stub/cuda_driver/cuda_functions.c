/* Every function that the driver exports, in all its versions, as tools/generate_stub.py wrote them. */
#include "cuda_stub.h"

#include "stub_cuda.inc"

/* Every function that NVML exports, in all its versions, as tools/generate_stub.py wrote them. */
#include "nvml_stub.h"

#include "stub_nvml.inc"

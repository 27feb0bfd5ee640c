/* Initialisation of NVML, and the names of errors. */
#include "nvml_stub.h"

#include <stdio.h>
#include <string.h>

static _Atomic int initialised;

/* Functions that may be called before nvmlInit. */
static int needs_nothing(const char *name)
{
  return !strncmp(name, "nvmlInit", 8) || !strcmp(name, "nvmlErrorString");
}

int stub_begin(unsigned n, nvmlReturn_t *result)
{
  if (initialised > 0 || needs_nothing(stub_functions[n].name)) return 1;
  *result = NVML_ERROR_UNINITIALIZED;
  return 0;
}

nvmlReturn_t stub_nvmlInitWithFlags(unsigned flags)
{
  (void)flags;
  if (!stub_state()) return NVML_ERROR_DRIVER_NOT_LOADED;
  initialised++;
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlInit_v2(void) { return stub_nvmlInitWithFlags(0); }
nvmlReturn_t stub_nvmlInit(void) { return stub_nvmlInitWithFlags(0); }

nvmlReturn_t stub_nvmlShutdown(void)
{
  initialised--;
  return NVML_SUCCESS;
}

static const char *text_of(nvmlReturn_t error)
{
  switch (error) {
  case NVML_SUCCESS: return "Success";
  case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
  case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
  case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
  case NVML_ERROR_NOT_FOUND: return "Not Found";
  case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
  case NVML_ERROR_TIMEOUT: return "Timeout";
  default: return "Unknown Error";
  }
}

/* The one function that does not return a code. */
EXPORT const char *nvmlErrorString(nvmlReturn_t error)
{
  return text_of(error);
}

nvmlReturn_t stub_nvmlSystemGetDriverVersion(char *version, unsigned length)
{
  snprintf(version, length, "580.00.00");
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
  snprintf(version, length, "13.580.00.00");
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlSystemGetCudaDriverVersion(int *version)
{
  *version = (int)stub_setting("VGPU_STUB_VERSION", 13000);
  return NVML_SUCCESS;
}

nvmlReturn_t stub_nvmlSystemGetCudaDriverVersion_v2(int *version)
{
  return stub_nvmlSystemGetCudaDriverVersion(version);
}

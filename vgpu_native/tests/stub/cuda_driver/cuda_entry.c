/* The entry to the driver: versions, names, and their functions. */
#include "cuda_stub.h"

#include <stdlib.h>
#include <string.h>

int stub_version(void)
{
  static _Atomic int version;
  if (!version) version = (int)stub_setting("VGPU_STUB_VERSION", 13000);
  return version;
}

CUresult stub_cuInit(unsigned flags)
{
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  const char *again = getenv("VGPU_STUB_FORK");
  if (stub_forked() && !(again && *again == '1')) return CUDA_ERROR_NOT_INITIALIZED;
  if (!stub_state()) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!stub_visible_devices()) return CUDA_ERROR_NO_DEVICE;
  if (!stub_join()) return CUDA_ERROR_OUT_OF_MEMORY;
  stub_initialised();
  return CUDA_SUCCESS;
}

CUresult stub_cuDriverGetVersion(int *version)
{
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = stub_version();
  return CUDA_SUCCESS;
}

/* The newest form of a function that both the program and the driver have. A program that requests the
 * thread's own stream gets that form if there is one. */
static const struct stub_function *choose(const char *base, int version, bool per_thread, bool *known)
{
  const struct stub_function *best = NULL;
  int newest = version < stub_version() ? version : stub_version();
  *known = false;
  for (unsigned i = 0; i < stub_function_count; i++) {
    const struct stub_function *one = &stub_functions[i];
    if (strcmp(one->base, base)) continue;
    *known = *known || one->introduced <= stub_version();
    if (one->introduced > newest || (one->stream == 2 && !per_thread)) continue;
    bool better = !best || one->stream > best->stream ||
                  (one->stream == best->stream && one->introduced > best->introduced);
    if (better) best = one;
  }
  return best;
}

static CUresult look_up(const char *base, void **found, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
  CUdriverProcAddressQueryResult ignored;
  if (!status) status = &ignored;
  if (!base || !found || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  bool known;
  const struct stub_function *best =
      choose(base, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &known);
  *found = best ? best->address : NULL;
  *status = best    ? CU_GET_PROC_ADDRESS_SUCCESS
            : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult stub_cuGetProcAddress(const char *base, void **found, int version, cuuint64_t flags)
{
  return look_up(base, found, version, flags, NULL);
}

CUresult stub_cuGetProcAddress_v2(const char *base, void **found, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status)
{
  return look_up(base, found, version, flags, status);
}

/* The tables hold the driver's secrets. Without them the runtime API cannot start. */
CUresult stub_cuGetExportTable(const void **table, const CUuuid *id)
{
  (void)id;
  if (table) *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}

#define ERRORS(X)                                                                              \
  X(CUDA_SUCCESS, "no error") X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                  \
  X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                 \
  X(CUDA_ERROR_NOT_INITIALIZED, "initialization error") X(CUDA_ERROR_NO_DEVICE, "no device")   \
  X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                       \
  X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                      \
  X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") X(CUDA_ERROR_NOT_FOUND, "not found") \
  X(CUDA_ERROR_NOT_READY, "not ready") X(CUDA_ERROR_NOT_SUPPORTED, "not supported")            \
  X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "the driver is older than the function")            \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not while a stream is captured")                   \
  X(CUDA_ERROR_UNKNOWN, "unknown error")

CUresult stub_cuGetErrorName(CUresult error, const char **text)
{
#define NAME(code, words) \
  if (error == code) return *text = #code, CUDA_SUCCESS;
  ERRORS(NAME)
  *text = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult stub_cuGetErrorString(CUresult error, const char **text)
{
#define WORDS(code, words) \
  if (error == code) return *text = words, CUDA_SUCCESS;
  ERRORS(WORDS)
  *text = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

/* The address of a function, independent of preloaded libraries. */
EXPORT uint64_t vgpu_stub_address(const char *function)
{
  for (unsigned i = 0; i < stub_function_count; i++)
    if (!strcmp(stub_functions[i].name, function)) return (uint64_t)(uintptr_t)stub_functions[i].address;
  return 0;
}

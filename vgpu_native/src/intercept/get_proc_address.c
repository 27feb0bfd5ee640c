/* cuGetProcAddress. The driver decides which function a name, a version and flags mean; hooks then
 * take the place of the functions that they are hooks of, known by their addresses. To choose by
 * name would give callers functions with other parameters than they asked for. */

#include <string.h>

#include "intercept/hook.h"
#include "intercept/hook_table.h"

/* Newer drivers are asked for this function itself by version, and give one that is not exported:
 * it is the first or the second form all the same. An older driver gives the first, whatever version
 * is asked for, and is known by it. */
static void *itself(const char *symbol, int version) {
  if (!symbol || strcmp(symbol, "cuGetProcAddress") != 0) return NULL;
  return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
}

static void substitute(const char *symbol, void **function, int version) {
  if (!function || !*function) return;
  const struct vgpu_hook *hook = vgpu_hook_of(*function);
  void *own = hook ? hook->address : itself(symbol, version);
  if (own) *function = own;
}

typedef CUresult v1(const char *, void **, int, cuuint64_t);
typedef CUresult v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
  CUresult result = REAL(cuGetProcAddress)(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version);
  return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status) {
  CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version);
  return result;
}

/* Some drivers export these for programs that were built with per-thread default streams. */
v1 cuGetProcAddress_ptsz;
v2 cuGetProcAddress_v2_ptsz;

EXPORT CUresult cuGetProcAddress_ptsz(const char *symbol, void **function, int version, cuuint64_t flags) {
  CUresult result = REAL(cuGetProcAddress_ptsz)(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version);
  return result;
}

EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *status) {
  CUresult result = REAL(cuGetProcAddress_v2_ptsz)(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version);
  return result;
}

/* cuGetProcAddress. The driver resolves a name, a version and flags to a function. If the address of
 * that function has a hook, the hook is returned. A choice by name would return functions with other
 * parameters than the caller requested. */

#include <string.h>

#include "intercept/hook.h"
#include "intercept/hook_table.h"

/* The hook of cuGetProcAddress itself. Newer drivers resolve it to a function that they do not export,
 * which has the first or the second form. Older drivers always return the first form, which is known by
 * its address. */
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

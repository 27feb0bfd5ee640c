/* cuGetProcAddress. The driver resolves a name, a version and flags to a function. If the address of
 * that function has a hook, the hook is returned. A choice by name would return functions with other
 * parameters than the caller requested.
 *
 * The driver has up to two addresses of a function: that of its symbol, and the result of
 * cuGetProcAddress for its base name at the version that introduced it, and with it its parameters. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "intercept/driver_functions.h"
#include "intercept/hook_table.h"
#include "intercept/unknown_functions.h"
#include "util/assert.h"

/* The text and not a pointer to it, because the loader would relocate a pointer in every process. */
static const struct query {
  char base[56];
  int version, flag;
} queries[VGPU_FN_COUNT] = {
#define VGPU_FUNCTION(name, base, version, flag) {base, version, flag},
    VGPU_FUNCTIONS
#undef VGPU_FUNCTION
};

/* Room for both addresses of all functions. It is not on the heap, because a process that was short of
 * memory once would get functions without hooks from then on. */
static struct hook_address {
  const void *real;
  const struct vgpu_hook *hook;
} hook_addresses[2 * VGPU_FN_COUNT];
static size_t address_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_address(const void *left, const void *right) {
  const void *a = ((const struct hook_address *)left)->real, *b = ((const struct hook_address *)right)->real;
  return (a > b) - (a < b);
}

static bool is_sorted(void) {
  for (size_t i = 1; i < address_count; i++)
    if (hook_addresses[i - 1].real > hook_addresses[i].real) return false;
  return true;
}

static const struct vgpu_hook *find(const void *real, size_t count) {
  const struct hook_address *hook_address =
      bsearch(&(struct hook_address){.real = real}, hook_addresses, count, sizeof *hook_addresses, by_address);
  return hook_address ? hook_address->hook : NULL;
}

static void *resolve(const char *base, int version, cuuint64_t flags) {
  void *found = NULL;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (HAS(cuGetProcAddress_v2)) result = REAL(cuGetProcAddress_v2)(base, &found, version, flags, NULL);
  else if (HAS(cuGetProcAddress)) result = REAL(cuGetProcAddress)(base, &found, version, flags);
  return result == CUDA_SUCCESS ? found : NULL;
}

/* The driver's address of a function. NULL: it has no such function, or no cuGetProcAddress. */
static void *ask_driver(enum vgpu_function function) {
  const struct query *query = &queries[function];
  cuuint64_t flags = query->flag ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                 : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  return query->version ? resolve(query->base, query->version, flags) : NULL;
}

/* Several names may share one address. Any of their hooks is correct, because one function has one list
 * of parameters. Symbols come first. A function without a symbol is newer than the driver, which would
 * return an older one. */
static void collect_addresses(void) {
  const struct vgpu_hook *hook;
  for (size_t i = 0; (hook = vgpu_hook_at(i)); i++)
    if (vgpu_driver_library(hook->function) && vgpu_has(hook->function))
      hook_addresses[address_count++] = (struct hook_address){vgpu_real(hook->function), hook};
  qsort(hook_addresses, address_count, sizeof *hook_addresses, by_address);
  size_t symbols = address_count;
  for (size_t i = 0; i < symbols; i++) {
    const void *real = ask_driver(hook_addresses[i].hook->function);
    if (real && !find(real, symbols))
      hook_addresses[address_count++] = (struct hook_address){real, hook_addresses[i].hook};
  }
  qsort(hook_addresses, address_count, sizeof *hook_addresses, by_address);
  VGPU_ASSERT(address_count <= sizeof hook_addresses / sizeof *hook_addresses);
  VGPU_ASSERT_EXPENSIVE(is_sorted());
}

/* The hook of the driver's function at this address, or NULL. */
static const struct vgpu_hook *hook_of(const void *real) {
  pthread_once(&once, collect_addresses);
  return find(real, address_count);
}

/* The hook of cuGetProcAddress itself. Newer drivers resolve it to a function that they do not export,
 * which has the first or the second form. Older drivers always return the first form, which is known by
 * its address. */
static void *itself(const char *symbol, int version) {
  if (!symbol || strcmp(symbol, "cuGetProcAddress") != 0) return NULL;
  return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
}

/* The newest version of a function in functions.inc; 0: it has none of this name. */
static int newest_known(const char *symbol) {
  int newest = 0;
  for (int i = 0; i < VGPU_FN_COUNT; i++)
    if (queries[i].version > newest && !strcmp(queries[i].base, symbol)) newest = queries[i].version;
  return newest;
}

/* Whether a function without a hook is of a newer driver: functions.inc lacks its name, or the newest version
 * there is another function. */
static bool is_unknown(const char *symbol, const void *function, int version, cuuint64_t flags) {
  int newest = newest_known(symbol);
  return !newest || (version > newest && resolve(symbol, newest, flags) != function);
}

static void substitute(const char *symbol, void **function, int version, cuuint64_t flags) {
  if (!function || !*function) return;
  const struct vgpu_hook *hook = hook_of(*function);
  void *own = hook ? hook->address : itself(symbol, version);
  if (own) *function = own;
  else if (symbol && is_unknown(symbol, *function, version, flags)) vgpu_log_unknown_function(symbol, version);
}

typedef CUresult v1(const char *, void **, int, cuuint64_t);
typedef CUresult v2(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
  CUresult result = REAL(cuGetProcAddress)(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status) {
  CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}

/* Some drivers export these for programs that were built with per-thread default streams. */
v1 cuGetProcAddress_ptsz;
v2 cuGetProcAddress_v2_ptsz;

EXPORT CUresult cuGetProcAddress_ptsz(const char *symbol, void **function, int version, cuuint64_t flags) {
  CUresult result = REAL(cuGetProcAddress_ptsz)(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}

EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *status) {
  CUresult result = REAL(cuGetProcAddress_v2_ptsz)(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(symbol, function, version, flags);
  return result;
}

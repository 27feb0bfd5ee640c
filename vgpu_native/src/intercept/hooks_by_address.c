/* Hooks by the addresses of the driver's functions.
 *
 * Each function has up to two addresses, because cuGetProcAddress may return another address than the
 * symbol has: the address of its symbol, and the result of cuGetProcAddress for its base name at the
 * version that introduced the function, and with it this list of parameters. */
#include <pthread.h>
#include <stdlib.h>

#include "intercept/driver_functions.h"
#include "intercept/hook_table.h"
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

/* The driver's address of a function. NULL: it has no such function, or no cuGetProcAddress. */
static void *ask_driver(enum vgpu_function function) {
  const struct query *query = &queries[function];
  cuuint64_t flags = query->flag ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                    : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  void *found = NULL;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (!query->version) return NULL;
  if (HAS(cuGetProcAddress_v2))
    result = REAL(cuGetProcAddress_v2)(query->base, &found, query->version, flags, NULL);
  else if (HAS(cuGetProcAddress))
    result = REAL(cuGetProcAddress)(query->base, &found, query->version, flags);
  return result == CUDA_SUCCESS ? found : NULL;
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

const struct vgpu_hook *vgpu_hook_of(const void *real) {
  pthread_once(&once, collect_addresses);
  return find(real, address_count);
}

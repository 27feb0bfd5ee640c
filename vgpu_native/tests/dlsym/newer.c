/* A driver that is newer than the library: it has functions, and versions of functions, that the library's
 * header lacks. */
#include <string.h>

#define NEWEST 14000

int cuMemAlloc_v2(void **pointer, unsigned long size) { return 0; }
int cuMemAlloc_v3(void **pointer, unsigned long size) { return 0; }
int cuMemAllocTurbo(void **pointer) { return 0; }
int cuWonder(void) { return 0; }
int cuCtxGetId(void *context, unsigned long long *id) { return 0; }

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
  *function = NULL;
  if (!strcmp(name, "cuMemAlloc")) *function = version < NEWEST ? (void *)cuMemAlloc_v2 : (void *)cuMemAlloc_v3;
  if (!strcmp(name, "cuMemAllocTurbo")) *function = (void *)cuMemAllocTurbo;
  if (!strcmp(name, "cuCtxGetId")) *function = (void *)cuCtxGetId;
  return *function ? 0 : 500;
}

/* A driver that only records the arguments of its calls. */
#include "echo.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct echo abi_echo;
unsigned abi_asked;

static void begin(int function) {
  abi_echo.function = function;
  abi_echo.size = 0;
}

static void note(const void *argument, unsigned size) {
  if (abi_echo.size + size > ECHO_ROOM) __builtin_trap();
  memcpy(abi_echo.bytes + abi_echo.size, argument, size);
  abi_echo.size += size;
}

static CUresult told(void) { return abi_echo.told; }

#include "echoes.inc"

static const struct {
  const char *base;
  void *address, *inner;
  int version, flag;
} functions[] = {
#define FUNCTION(number, name, base, version, flag) {#base, (void *)name, (void *)inner_##name, version, flag},
#include "rows.inc"
#undef FUNCTION
    {"cuGetProcAddress", (void *)cuGetProcAddress, (void *)cuGetProcAddress, 11030, 0},
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2, (void *)cuGetProcAddress_v2, 12000, 0},
};

/* The newest function up to the requested version. Flag 2 selects forms for per-thread default streams,
 * if there are any. */
static void *find(const char *symbol, int version, cuuint64_t flags) {
  void *best = NULL;
  int newest = 0, form = 0;
  bool inner = getenv("ABI_INNER"); /* return other addresses than dlsym */
  for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(functions[i].base, symbol) != 0 || functions[i].version > version) continue;
    if (functions[i].flag && !(flags & 2)) continue;
    if (functions[i].flag < form || (functions[i].flag == form && functions[i].version < newest)) continue;
    best = inner ? functions[i].inner : functions[i].address, newest = functions[i].version, form = functions[i].flag;
  }
  return best;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  abi_asked++;
  *function = find(symbol, version, flags);
  if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

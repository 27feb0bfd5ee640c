/* Call every function of the driver by every way to it, with a sentinel in each argument. Fails unless
 * all arguments arrive at the function and its result returns.
 *
 *   calls linked | dlsym | address       prints "<calls> <calls that went through a hook>"
 *   calls itself                         looks cuGetProcAddress itself up */
#include "echo.h"

#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *now;
static unsigned calls, hooked, at;

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", now, what);
  exit(1);
}

static void fill(unsigned char *argument, unsigned size, int function, int index) {
  for (unsigned i = 0; i < size; i++)
    argument[i] = (unsigned char)(1 + 7 * function + 31 * index + 13 * i);
}

/* Pointers point to zeros, each to a place of its own, because hooks may read them. */
enum { ARGUMENTS = 16, PLACE = 256 };
static char places[1000 * ARGUMENTS * PLACE] __attribute__((aligned(PLACE)));

static void point(void *argument, unsigned size, int function, int index) {
  void *place = places + (function * ARGUMENTS + index) * PLACE;
  memcpy(argument, &place, size);
}

static CUresult result_of(int function) { return (CUresult)(100000 + function); }

static void prepare(int function) {
  abi_echo.function = -1;
  abi_echo.told = result_of(function);
}

static void arrived(int function, CUresult result) {
  calls++, at = 0;
  if (abi_echo.function == -1) fail("the call did not arrive");
  if (abi_echo.function != function) fail("the call arrived at another function");
  if (result != result_of(function)) fail("another result came back");
}

static void expect(const void *argument, unsigned size, int index) {
  if (at + size > abi_echo.size) fail("arguments are missing");
  if (memcmp(abi_echo.bytes + at, argument, size) != 0) {
    fprintf(stderr, "argument %d: ", index);
    fail("it arrived changed");
  }
  at += size;
}

static void arrived_all(void) {
  if (at != abi_echo.size) fail("more arguments arrived than were given");
}

#include "calls.inc"

static const struct row {
  const char *name, *base;
  void (*call)(void *);
  void *linked;
  int version, flag;
} rows[] = {
#define FUNCTION(number, name, base, version, flag) {#name, #base, call_##name, (void *)name, version, flag},
#include "rows.inc"
#undef FUNCTION
};

enum { ROWS = sizeof rows / sizeof *rows };

/* Whether an address is one of libvgpu.so. */
static bool of_library(void *address) {
  Dl_info info;
  if (!dladdr(address, &info)) fail("its address is nobody's");
  return strstr(info.dli_fname, "libvgpu") != NULL;
}

static void *found(void *address) {
  if (!address) fail("it was not found");
  return address;
}

/* Calls directly if there is no address. */
static void call(const struct row *row, void *address) {
  hooked += of_library(address ? address : row->linked);
  row->call(address);
}

static bool has_form(const char *base) {
  for (unsigned i = 0; i < ROWS; i++)
    if (rows[i].flag && strcmp(rows[i].base, base) == 0) return true;
  return false;
}

/* Each function at the version that introduced it, by both forms of cuGetProcAddress, with the flags that
 * select it. All flags select a function without a form for per-thread streams. */
static void by_address(const struct row *row) {
  static const cuuint64_t legacy[] = {0, 1}, thread[] = {2}, all[] = {0, 1, 2};
  bool forms = has_form(row->base);
  const cuuint64_t *flags = row->flag ? thread : forms ? legacy : all;
  unsigned count = row->flag ? 1 : forms ? 2 : 3;
  for (unsigned i = 0; i < count; i++) {
    void *address = NULL;
    CUdriverProcAddressQueryResult status = 99;
    if (cuGetProcAddress_v2(row->base, &address, row->version, flags[i], &status)) fail("no address");
    if (status != CU_GET_PROC_ADDRESS_SUCCESS) fail("the status was lost");
    call(row, found(address));
    if (cuGetProcAddress_v2(row->base, &address, row->version, flags[i], NULL)) fail("no status, no address");
    call(row, found(address));
    if (cuGetProcAddress(row->base, &address, row->version, flags[i])) fail("no address by the old form");
    call(row, found(address));
  }
}

/* Look cuGetProcAddress up by each version of itself, and print the results. */
static int itself(void) {
  static const int versions[] = {11030, 11080, 12000, 13000};
  for (unsigned i = 0; i < sizeof versions / sizeof *versions; i++) {
    void *address = NULL;
    Dl_info info;
    if (cuGetProcAddress_v2("cuGetProcAddress", &address, versions[i], 0, NULL)) return 1;
    if (!dladdr(address, &info)) return 1;
    printf("%d %s %d\n", versions[i], info.dli_sname, of_library(address));
  }
  void *nothing = NULL;
  CUdriverProcAddressQueryResult status = 99;
  CUresult result = cuGetProcAddress_v2("cuNothing", &nothing, 13000, 0, &status);
  printf("%d %d %d\n", result, status, nothing == NULL);
  return 0;
}

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "";
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return 3;
  if (strcmp(way, "itself") == 0) return itself();
  for (unsigned i = 0; i < ROWS; i++) {
    now = rows[i].name;
    if (strcmp(way, "linked") == 0)
      call(&rows[i], NULL);
    else if (strcmp(way, "dlsym") == 0)
      call(&rows[i], found(dlsym(driver, now)));
    else if (strcmp(way, "address") == 0)
      by_address(&rows[i]);
    else
      return 2;
  }
  printf("%u %u\n", calls, hooked);
  return 0;
}

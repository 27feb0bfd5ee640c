/* The shared declarations of the stub NVML. */
#pragma once

#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#include <stddef.h>

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

/* Calls of NVML are not counted, and are refused only before its initialisation. */
struct stub_function {
  const char *name, *base;
  int introduced, stream;
  void *address;
};
extern const struct stub_function stub_functions[];
extern const unsigned stub_function_count;
#define STUB_SPECIAL(n) 1
/* The device of a handle, -1 if it is invalid. */
int stub_nvml_number(nvmlDevice_t device);
nvmlDevice_t stub_nvml_handle(int device);

/* The common start of most functions of a device; `i` is its number. */
#define DEVICE(device, out)                                       \
  int i = stub_nvml_number(device);                               \
  if (i < 0 || !(out)) return NVML_ERROR_INVALID_ARGUMENT;        \
  if (stub_state()->device[i].lost) return NVML_ERROR_GPU_IS_LOST

int stub_begin(unsigned n, nvmlReturn_t *result);
#define stub_enter(stream) 0
#define stub_leave(before) (void)(before)

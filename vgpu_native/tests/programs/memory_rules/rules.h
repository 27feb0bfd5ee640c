/* State and helpers of all rules of memory_rules.c. */
#pragma once

#include "../allocators.h"

static struct taken some, other;

static const struct allocator *by(const char *name) {
  for (const struct allocator *each = allocators; each < allocators + ALLOCATORS; each++) {
    if (!strcmp(each->name, name)) return each;
  }
  CHECK(!"an allocator");
  return NULL;
}

/* The table of hooks, which the build makes from all functions that the library exports. */
#include "resolve.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hooks.inc"

/* NVML's hooks are declared here as whatever: only their addresses are taken. */
#define VGPU_HOOK(name) extern char vgpu_hook_##name[] __asm__(#name);
VGPU_HOOKS
#undef VGPU_HOOK

/* Sorted by name. */
static const struct vgpu_hook hooks[] = {
#define VGPU_HOOK(name) {#name, VGPU_FN_##name, vgpu_hook_##name},
    VGPU_HOOKS
#undef VGPU_HOOK
};

enum { COUNT = sizeof hooks / sizeof *hooks };

static int by_name(const void *name, const void *hook) {
  return strcmp(name, ((const struct vgpu_hook *)hook)->name);
}

const struct vgpu_hook *vgpu_hook_named(const char *name) {
  return bsearch(name, hooks, COUNT, sizeof *hooks, by_name);
}

/* Hooks by the driver's addresses. Several names may share one address: any hook will do then, as
 * one function has one list of parameters. */
static struct place {
  const void *real;
  const struct vgpu_hook *hook;
} places[COUNT];
static size_t placed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_address(const void *left, const void *right) {
  const void *a = ((const struct place *)left)->real, *b = ((const struct place *)right)->real;
  return (a > b) - (a < b);
}

static void place_all(void) {
  for (size_t i = 0; i < COUNT; i++)
    if (vgpu_library(hooks[i].function) && vgpu_has(hooks[i].function))
      places[placed++] = (struct place){vgpu_real(hooks[i].function), &hooks[i]};
  qsort(places, placed, sizeof *places, by_address);
}

const struct vgpu_hook *vgpu_hook_of(const void *real) {
  pthread_once(&once, place_all);
  struct place *place = bsearch(&(struct place){.real = real}, places, placed, sizeof *places, by_address);
  return place ? place->hook : NULL;
}

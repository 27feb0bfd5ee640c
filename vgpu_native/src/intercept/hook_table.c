/* The table of hooks. The build generates it from the functions that the library exports. */

#include <stdlib.h>
#include <string.h>

#include "intercept/hook_table.h"

#include "hooks.inc"

/* The declared type is not the hooks' own: only their addresses are used. */
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

const struct vgpu_hook *vgpu_hook_at(size_t index) { return index < COUNT ? &hooks[index] : NULL; }

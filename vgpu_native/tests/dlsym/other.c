/* Another preloaded library that looks up the functions that it replaces: an allocator, a tool that looks
 * for another one of its kind, and an interposer of the driver. */
#include <dlfcn.h>
#include <stddef.h>

static void *(*real_malloc)(size_t);

void *malloc(size_t size) {
  if (!real_malloc) real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return real_malloc(size);
}

void *other_malloc(void) {
  void *volatile used = malloc(1);
  return used ? (void *)real_malloc : NULL;
}

/* Finds the next tool of this name, never itself. */
void *ompt_start_tool(void) { return dlsym(RTLD_NEXT, "ompt_start_tool"); }

int cuMemAlloc_v2(void *pointer, size_t size) { return 4711; }

void *other_next(void) { return dlsym(RTLD_NEXT, "cuMemAlloc_v2"); }

void *other_next_dlsym(void) { return dlsym(RTLD_NEXT, "dlsym"); }

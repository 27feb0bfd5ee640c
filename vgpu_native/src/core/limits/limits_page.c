/* The limits page, mapped read-only, and whether it or the environment sets the limits. Its words are read
 * at every decision, so that a change by the agent holds from the next decision on. */
#include "core/limits/limits_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/limits/environment.h"
#include "statx_compat.h"
#include "util/assert.h"
#include "util/passing_errors.h"
#include "vgpu.h"

#define PAGE "/etc/gpuledger/limits"
enum { PREFIX = 4 }; /* of `GPU-` and `MIG-` */

/* These survive a fork, because the page stays mapped. */
static const vgpu_limits *page;
static bool opened, paged, mounted, cores_off;

static const vgpu_limits *map(int file) {
  struct stat state;
  errno = 0;
  if (vgpu_fstat(file, &state) || !S_ISREG(state.st_mode) || state.st_size < (off_t)sizeof *page)
    return NULL;
  const vgpu_limits *found = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, file, 0);
  if (found == MAP_FAILED) return NULL;
  errno = 0;
  if (found->magic == VGPU_MAGIC && found->version == VGPU_VERSION && found->size == sizeof *page &&
      found->devices <= VGPU_DEVICES_MAX)
    return found;
  munmap((void *)found, sizeof *page);
  return NULL;
}

static int open_at(const char *name) {
  return open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* The path of the page; NULL: there is none. No file is opened to find that out, because a process may have
 * no room for one. */
static const char *path_of_page(void) {
  struct stat state;
  if (!vgpu_stat(PAGE, &state) || (errno != ENOENT && errno != ENOTDIR)) return PAGE;
  return getenv("GPULEDGER_LIMITS_FILE");
}

/* Map the page at a path. False: it cannot be opened or mapped for now, by errno. */
static bool map_page(const char *name) {
  int file = open_at(name);
  errno = file < 0 ? errno : 0;
  if (file >= 0) {
    page = map(file);
    int kept = errno;
    close(file);
    errno = kept;
  }
  return page || !vgpu_passes(errno);
}

bool vgpu_limits_open(bool first) {
  if (opened) return true;
  const char *name = path_of_page();
  /* A named page that is missing counts as invalid, because a page is named to set limits. */
  paged = name != NULL;
  mounted = paged && !strcmp(name, PAGE);
  if (paged && !map_page(name)) {
    if (first)
      vgpu_log(VGPU_ERROR, "%s cannot be opened: %s; no memory is given until it can. %s", name,
               strerror(errno), vgpu_remedy(errno));
    return false;
  }
  if (paged && !page)
    vgpu_log(VGPU_ERROR,
             "%s is not a limits page of version %d; no memory is given. The node agent writes it",
             name, VGPU_VERSION);
  cores_off = (!paged || vgpu_limits_may_disable()) && vgpu_environment_cores_off();
  opened = true;
  return true;
}

bool vgpu_limits_paged(void) { return paged; }

static uint64_t read_word(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }

bool vgpu_limits_disabled(void) {
  if (!vgpu_switch("CUDA_DISABLE_CONTROL")) return false;
  if (!vgpu_limits_paged() || vgpu_limits_may_disable()) return true;
  vgpu_log(VGPU_WARNING, "CUDA_DISABLE_CONTROL has no effect: the limits page does not allow it");
  return false;
}

bool vgpu_limits_may_disable(void) { return page && read_word(&page->flags) & VGPU_MAY_DISABLE; }

bool vgpu_limits_contexts_exempt(void) { return page && read_word(&page->flags) & VGPU_CONTEXTS_EXEMPT; }

/* The container can set the variable that names a page, and so can name the region, too. */
bool vgpu_limits_binding(void) { return mounted && !vgpu_limits_may_disable(); }

int vgpu_limits_find(char *uuid) {
  for (unsigned i = 0; page && i < page->devices; i++)
    if (!strncmp(page->uuid[i] + PREFIX, uuid + PREFIX, VGPU_UUID_BYTES - PREFIX)) {
      memcpy(uuid, page->uuid[i], PREFIX);
      return (int)i;
    }
  return -1;
}

/* Whether a source is a device of the page, or of the environment where there is no page. */
static bool is_of_page(const struct vgpu_source *source) {
  return source->page < 0 || (page && source->page < VGPU_DEVICES_MAX && page->uuid[source->page][0]);
}

uint64_t vgpu_limits_memory(const struct vgpu_source *source) {
  VGPU_ASSERT(is_of_page(source));
  return source->page < 0 ? source->memory : read_word(&page->memory[source->page]);
}

uint64_t vgpu_limits_overhead(const struct vgpu_source *source) {
  return source->page < 0 ? 0 : read_word(&page->overhead[source->page]);
}

unsigned vgpu_limits_cores(const struct vgpu_source *source) {
  if (cores_off || (page && read_word(&page->flags) & VGPU_CORES_OFF)) return 100;
  uint64_t percent = source->page < 0 ? source->cores : read_word(&page->cores[source->page]);
  return percent && percent < 100 ? (unsigned)percent : 100;
}

const uint64_t *vgpu_limits_changes(void) {
  static const uint64_t none;
  return page ? &page->generation : &none;
}

bool vgpu_limits_cores_unlimited(void) {
  unsigned limited = 0;
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
    struct vgpu_source source = {.page = page ? i : -1};
    if (!page) source.cores = vgpu_environment_cores((unsigned)i);
    if (!page || i < (int)page->devices) limited += vgpu_limits_cores(&source) < 100;
  }
  return !limited;
}

bool vgpu_oversubscribes(void) {
  static int asked = -1;
  if (paged) return page && read_word(&page->flags) & VGPU_OVERSUBSCRIBE;
  int now = __atomic_load_n(&asked, __ATOMIC_RELAXED);
  if (now < 0) __atomic_store_n(&asked, now = vgpu_switch("CUDA_OVERSUBSCRIBE"), __ATOMIC_RELAXED);
  return now;
}

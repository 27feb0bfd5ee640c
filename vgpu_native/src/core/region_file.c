/* The file of the region. A reader sees a complete file or none, because it is written under another
 * name and then linked. A region of an earlier boot is replaced, because no kernel marked its dead
 * owners. */
#include "core/region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/limits/limits_page.h"
#include "statx_compat.h"
#include "util/clock.h"
#include "util/passing_errors.h"
#include "vgpu.h"

#define REGION "/run/gpuledger/region" /* in a container with a limits page */

enum { ATTEMPTS = 8, LOCK_ATTEMPTS = 100, LOCK_PAUSE_NS = 1000000 };
enum found { GOOD, STALE, REFUSED, FAILED };

static uint64_t boot_identity;

/* Read the identity of this boot, in the upper half of a generation: FNV-1a of the kernel's boot id. If the
 * boot id cannot be read, all boots have one identity. False: it cannot be read for now, by errno. With a
 * wrong identity this process would replace the region of the others. */
static bool read_boot(void) {
  if (__atomic_load_n(&boot_identity, __ATOMIC_RELAXED)) return true;
  char id[64];
  int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, id, sizeof id);
  int kept = errno;
  if (file >= 0) close(file);
  errno = kept;
  if (length < 0 && vgpu_passes(errno)) return false;
  uint32_t sum = 2166136261;
  for (ssize_t i = 0; i < length; i++) sum = (sum ^ (unsigned char)id[i]) * 16777619;
  __atomic_store_n(&boot_identity, (uint64_t)sum << 32 | 1, __ATOMIC_RELAXED);
  return true;
}

static uint64_t boot(void) { return __atomic_load_n(&boot_identity, __ATOMIC_RELAXED); }

static bool this_boot(uint64_t generation) { return generation >> 32 == boot() >> 32; }

/* Initialise a new region. All other fields start as zero. */
static void initialise(vgpu_region *region) {
  region->magic = VGPU_MAGIC;
  region->version = VGPU_VERSION;
  region->size = sizeof *region;
  region->slots = VGPU_SLOTS_MAX;
  region->slot_size = sizeof region->slot[0];
  region->generation = (boot() >> 32 << 32) | (uint32_t)vgpu_monotonic();
}

vgpu_region *vgpu_region_private(void) {
  if (!read_boot()) return NULL;
  vgpu_region *region =
      mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) return NULL;
  initialise(region);
  return region;
}

const char *vgpu_region_fallback(void) {
  return vgpu_limits_binding() ? "no memory is given" : "this process is limited by itself";
}

static bool write_all(int file, const void *content, size_t size) {
  while (size) {
    ssize_t written = write(file, content, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content = (const char *)content + written;
    size -= (size_t)written;
  }
  return true;
}

/* Whether all processes of a container share the region, of any user. */
static bool is_shared(void) {
  return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE") || vgpu_limits_paged();
}

/* Whether a file may be as large as a region. If not, writing one would end the program by SIGXFSZ as
 * soon as it unblocks its signals. */
static bool fits_file_limit(void) {
  struct rlimit most;
  return getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur >= sizeof(vgpu_region);
}

/* Write a complete region to a new file. Its blocks are written and not left as a hole, so that a full
 * disk is an error now instead of a SIGBUS later. A shared region is writable by all users. */
static bool write_new(const char *path) {
  if (!fits_file_limit()) return errno = EFBIG, false;
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return false;
  vgpu_region *fresh = vgpu_region_private();
  bool done = fresh && write_all(file, fresh, sizeof *fresh) && (!is_shared() || !fchmod(file, 0666));
  int kept = errno;
  if (fresh) munmap(fresh, sizeof *fresh);
  if (close(file)) done = false;
  if (!done) unlink(path);
  errno = kept;
  return done;
}

/* Create a region under a path, replacing a stale one or only if there is none. */
static bool create(const char *path, bool replace) {
  char other[PATH_MAX + 64];
  snprintf(other, sizeof other, "%s.%d.%llx", path, (int)getpid(), (unsigned long long)vgpu_monotonic());
  if (!write_new(other)) return false;
  bool done = replace ? !rename(other, path) : !link(other, path) || errno == EEXIST;
  int kept = errno;
  if (!replace || !done) unlink(other);
  errno = kept;
  return done;
}

static vgpu_region *map(int file) {
  void *memory = mmap(NULL, sizeof(vgpu_region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* Why a file cannot be a region, by its metadata; NULL if it can. */
static const char *wrong_file(int file) {
  struct stat state;
  if (vgpu_fstat(file, &state) || !S_ISREG(state.st_mode)) return "it is not a file";
  if (state.st_size != sizeof(vgpu_region)) return "its size is another";
  if (!is_shared() && state.st_uid != geteuid()) return "it is another user's";
  return NULL;
}

/* Why the content is not a region of this version; NULL if it is. */
static const char *wrong_version(const vgpu_region *region) {
  if (region->magic != VGPU_MAGIC) return "it is something else";
  if (region->version != VGPU_VERSION) return "it is of another version";
  if (region->size != sizeof *region || region->slots != VGPU_SLOTS_MAX ||
      region->slot_size != sizeof region->slot[0])
    return "its parts have other sizes";
  return NULL;
}

/* Map a file if it is a region. FAILED: it cannot be mapped, by errno. */
static enum found map_checked(int file, const char *path, vgpu_region **region) {
  const char *why = wrong_file(file);
  vgpu_region *mapped = why ? NULL : map(file);
  if (!why && !mapped) return FAILED;
  if (!why) why = wrong_version(mapped);
  enum found found = why ? REFUSED : this_boot(mapped->generation) ? GOOD : STALE;
  if (found == GOOD) *region = mapped;
  else if (mapped) munmap(mapped, sizeof *mapped);
  if (why)
    vgpu_log(VGPU_ERROR, "%s is refused as region: %s; %s. Remove the file", path, why,
             vgpu_region_fallback());
  return found;
}

/* Lock the file, unless another process keeps the lock for longer than creating a region can take. */
static bool lock(int file) {
  for (int i = 0; i < LOCK_ATTEMPTS; i++) {
    if (!flock(file, LOCK_EX | LOCK_NB)) return true;
    nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
  }
  errno = EBUSY;
  return false;
}

/* Replace a stale region by a new one. Only the process that holds the lock of the named file does so,
 * and a later one finds another file under the name. */
static bool replace_stale(int stale, const char *path) {
  struct stat held, named;
  if (!lock(stale)) return false;
  bool still = !vgpu_fstat(stale, &held) && !vgpu_stat(path, &named) &&
               held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  return !still || create(path, true);
}

static int open_at(const char *path) {
  /* Do not wait for the other end of a pipe, nor take over a terminal. */
  return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

vgpu_region *vgpu_region_open(const char *path) {
  if (!read_boot()) return NULL;
  for (int i = 0; i < ATTEMPTS; i++) {
    int file = open_at(path);
    if (file < 0 && errno == ENOENT && create(path, false)) continue;
    if (file < 0) break;
    vgpu_region *region = NULL;
    enum found found = map_checked(file, path, &region);
    bool again = found == STALE && replace_stale(file, path);
    int kept = errno;
    close(file);
    errno = found == REFUSED ? 0 : kept;
    if (!again) return region;
  }
  return NULL;
}

/* The path that the environment sets, NULL if it sets none or may not set one. */
static const char *named_region(void) {
  const char *named = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
  if (!named || !*named || !vgpu_limits_binding()) return named && *named ? named : NULL;
  if (strcmp(named, REGION))
    vgpu_log(VGPU_WARNING, "CUDA_DEVICE_MEMORY_SHARED_CACHE has no effect: the region is " REGION);
  return NULL;
}

void vgpu_region_path(char *path, size_t room) {
  struct stat state;
  const char *named = named_region();
  if (named)
    snprintf(path, room, "%s%s", named,
             !vgpu_stat(named, &state) && S_ISDIR(state.st_mode) ? "/region" : "");
  else if (vgpu_limits_paged()) snprintf(path, room, REGION);
  else snprintf(path, room, "/tmp/gpuledger.%u.v%u.region", (unsigned)geteuid(), VGPU_VERSION);
}

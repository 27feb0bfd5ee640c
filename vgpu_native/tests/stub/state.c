#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC (0x53540000u + (uint32_t)sizeof(struct stub_state)) /* files of other layouts are replaced */

static struct stub_state *state;
static int file = -1;
static int me = -1;
static bool forked;
static bool hidden[STUB_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t stub_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t stub_setting(const char *name, uint64_t fallback)
{
  const char *text = getenv(name);
  if (!text || !*text) return fallback;
  char *end;
  uint64_t value = strtoull(text, &end, 10);
  const char *units = "kmgt", *unit = *end ? strchr(units, *end | 0x20) : NULL;
  return unit ? value << (10 * (unit - units + 1)) : value;
}

static void make_gate(struct stub_state *made)
{
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&made->gate, &kind);
}

static void make(struct stub_state *made)
{
  make_gate(made);
  uint64_t devices = stub_setting("VGPU_STUB_DEVICES", 1);
  made->devices = devices < STUB_DEVICES ? (uint32_t)devices : STUB_DEVICES;
  for (uint32_t i = 0; i < made->devices; i++)
    made->device[i].size = stub_setting("VGPU_STUB_MEMORY", 80ull << 30);
  __atomic_store_n(&made->magic, MAGIC, __ATOMIC_RELEASE);
}

/* The file lock, not the magic number, separates two simultaneous first processes. */
static struct stub_state *map_file(const char *name)
{
  int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return NULL;
  flock(fd, LOCK_EX);
  void *at = MAP_FAILED;
  if (ftruncate(fd, sizeof(struct stub_state)) == 0)
    at = mmap(NULL, sizeof(struct stub_state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED && ((struct stub_state *)at)->magic != MAGIC) make(at);
  flock(fd, LOCK_UN);
  if (at == MAP_FAILED) {
    close(fd);
    return NULL;
  }
  file = fd;
  return at;
}

/* A fork copies the lock of a machine without a file. The lock of a file is not copied: its holder continues
 * in the parent. */
static void before_fork(void)
{
  if (file < 0) stub_lock();
}

static void in_parent(void)
{
  if (file < 0) stub_unlock();
}

/* A child has neither the parent's memory nor its lock; closing its descriptor does not release the lock. */
static void in_child(void)
{
  if (me >= 0) forked = true;
  me = -1;
  if (file < 0) {
    make_gate(state);
    return;
  }
  char same[32];
  snprintf(same, sizeof same, "/proc/self/fd/%d", file);
  int again = open(same, O_RDWR | O_CLOEXEC);
  close(file);
  file = again;
}

/* A container runtime gives a container the nodes of its cards only. */
static void look_for_nodes(uint32_t devices)
{
  const char *folder = getenv("VGPU_STUB_NODES");
  char node[PATH_MAX];
  for (uint32_t i = 0; folder && *folder && i < devices; i++) {
    snprintf(node, sizeof node, "%s/nvidia%u", folder, i);
    hidden[i] = access(node, R_OK | W_OK) != 0;
  }
}

static void open_once(void)
{
  const char *name = getenv("VGPU_STUB_STATE");
  struct stub_state *opened = NULL;
  if (name && *name) {
    opened = map_file(name);
  } else {
    void *at = mmap(NULL, sizeof *opened, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) make(opened = at);
  }
  if (opened) look_for_nodes(opened->devices);
  __atomic_store_n(&state, opened, __ATOMIC_RELEASE);
  if (opened) pthread_atfork(before_fork, in_parent, in_child);
}

struct stub_state *stub_state(void)
{
  struct stub_state *opened = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
  if (opened) return opened;
  pthread_once(&once, open_once);
  return state;
}

bool stub_visible(int device)
{
  return device >= 0 && device < (int)stub_state()->devices && !hidden[device];
}

int stub_number_of(int index)
{
  for (int i = 0; i < (int)stub_state()->devices; i++)
    if (!hidden[i] && index-- == 0) return i;
  return -1;
}

int stub_index_of(int device)
{
  int before = 0;
  for (int i = 0; i < device; i++) before += !hidden[i];
  return before;
}

int stub_visible_devices(void)
{
  return stub_index_of((int)stub_state()->devices);
}

/* The usage of a device is the sum of its processes and shares, so nothing else needs a repair. */
static void recount(void)
{
  for (uint32_t d = 0; d < state->devices; d++) {
    uint64_t used = 0;
    for (int i = 0; i < STUB_PROCESSES; i++)
      if (state->process[i].pid) used += state->process[i].used[d];
    for (int i = 0; i < STUB_SHARES; i++)
      if (state->share[i].bytes && state->share[i].device == (int32_t)d) used += state->share[i].bytes;
    state->device[d].used = used;
  }
}

void stub_lock(void)
{
  if (pthread_mutex_lock(&stub_state()->gate) == EOWNERDEAD) {
    recount();
    pthread_mutex_consistent(&state->gate);
  }
}

void stub_unlock(void)
{
  pthread_mutex_unlock(&state->gate);
}

static void let_go(struct stub_share *share, int i)
{
  share->holders[i / 64] &= ~(1ull << (i % 64));
  for (int k = 0; k < STUB_PROCESSES / 64; k++)
    if (share->holders[k]) return;
  state->device[share->device].used -= share->bytes;
  share->bytes = 0;
}

static void forget(int i)
{
  struct stub_process *gone = &state->process[i];
  for (uint32_t d = 0; d < state->devices; d++) state->device[d].used -= gone->used[d];
  for (int k = 0; k < STUB_SHARES; k++)
    if (state->share[k].bytes && stub_held_by(&state->share[k], i)) let_go(&state->share[k], i);
  memset(gone, 0, sizeof *gone);
}

/* Locks of open file descriptions: the kernel drops them at death and exec, and not at a fork. */
static struct flock byte_of(int i)
{
  return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
}

void stub_reap(void)
{
  if (file < 0) return;
  for (int i = 0; i < state->highest; i++) {
    struct flock lock = byte_of(i);
    if (i == me || !state->process[i].pid) continue;
    if (fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) forget(i);
  }
}

/* A lock of the process itself: the kernel translates its holder's pid for each pid namespace. */
static struct flock pid_of_process(int i)
{
  return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = STUB_PROCESSES + i, .l_len = 1};
}

pid_t stub_pid(int i)
{
  struct flock lock = pid_of_process(i);
  if (file < 0 || fcntl(file, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0)
    return state->process[i].pid;
  return lock.l_pid;
}

static bool claim(int i)
{
  struct flock lock = byte_of(i), pid = pid_of_process(i);
  if (file < 0) return true;
  return fcntl(file, F_OFD_SETLK, &lock) == 0 && fcntl(file, F_SETLK, &pid) == 0;
}

bool stub_join(void)
{
  if (me >= 0) return true;
  stub_lock();
  stub_reap();
  for (int i = 0; i < STUB_PROCESSES && me < 0; i++) {
    if (state->process[i].pid || !claim(i)) continue;
    state->process[i].pid = getpid();
    me = i;
    if (i >= state->highest) state->highest = i + 1;
  }
  stub_unlock();
  return me >= 0;
}

bool stub_forked(void)
{
  return forked;
}

bool stub_take(int device, uint64_t bytes)
{
  stub_lock();
  struct stub_device *on = &state->device[device];
  if (bytes > on->size - on->used) stub_reap();
  bool fits = bytes <= on->size - on->used;
  if (fits) {
    on->used += bytes;
    state->process[me].used[device] += bytes;
  }
  stub_unlock();
  return fits;
}

void stub_give(int device, uint64_t bytes)
{
  stub_lock();
  state->device[device].used -= bytes;
  state->process[me].used[device] -= bytes;
  stub_unlock();
}

int stub_share(int device, uint64_t bytes)
{
  int found = -1;
  stub_lock();
  for (int i = 0; i < STUB_SHARES && found < 0; i++)
    if (!state->share[i].bytes) found = i;
  if (found >= 0) {
    struct stub_share *share = &state->share[found];
    *share = (struct stub_share){bytes, device, me, share->generation + 1, {0}};
    share->holders[me / 64] = 1ull << (me % 64);
    state->process[me].used[device] -= bytes;
  }
  stub_unlock();
  return found;
}

bool stub_hold(int i, uint32_t generation)
{
  if (i < 0 || i >= STUB_SHARES) return false;
  stub_lock();
  stub_reap();
  struct stub_share *share = &state->share[i];
  bool known = share->bytes && share->generation == generation;
  if (known) share->holders[me / 64] |= 1ull << (me % 64);
  stub_unlock();
  return known;
}

void stub_drop(int i)
{
  stub_lock();
  let_go(&state->share[i], me);
  stub_unlock();
}

uint64_t stub_run(int device, uint64_t not_before, uint64_t ns)
{
  stub_lock();
  struct stub_device *on = &state->device[device];
  uint64_t begin = on->free_at > not_before ? on->free_at : not_before;
  on->free_at = begin + ns;
  on->busy_ns += ns;
  on->last = me;
  if (me >= 0) state->process[me].busy_ns[device] += ns;
  stub_unlock();
  return begin + ns;
}

uint64_t stub_turn(int device)
{
  stub_lock();
  struct stub_device *on = &state->device[device];
  uint64_t turn = on->last == me ? 0 : on->free_at;
  stub_unlock();
  return turn;
}

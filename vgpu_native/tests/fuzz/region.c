/* A region with any content: attaching and reserving must end soon and without a crash, and a process alone
 * must not get more than its limit.
 *
 * An input is a list of changes to a valid region, twelve bytes each. If the upper bit of the first byte
 * is set, they are written again and again while a process uses the region. Every input has a process of
 * its own, because a process attaches only once. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"
#include "vgpu.h"

/* The failures that a process reports by its status. The upper ones only hold while its own count is not
 * overwritten. */
enum { UNUSABLE = 10, WIDER, ABOVE, TOGETHER_ABOVE };
enum { SIZE = sizeof(vgpu_region), CHANGE = 12, DEADLINE_MS = 5000, ROUNDS = 8, PLACES = 9 };
#define LIMIT (64ull << 20)

static const unsigned char UUID[16] = {[15] = 1};
static char path[64], report[80];
static unsigned char good[SIZE];

/* Use a region. The status reports a failure. */
static int use(void) {
  if (!vgpu_ready()) return UNUSABLE;
  int entry = vgpu_ready() ? vgpu_entry(UUID, 0) : -1;
  if (entry < 0) return UNUSABLE;
  for (int i = 0; i < ROUNDS; i++) {
    if (vgpu_limit(entry) > LIMIT) return WIDER;
    if (vgpu_reserve(entry, LIMIT + 1)) return ABOVE;
    bool given = vgpu_reserve(entry, LIMIT / 2);
    if (given && vgpu_reserve(entry, LIMIT / 2 + 1)) return TOGETHER_ABOVE;
    if (given) vgpu_release(entry, LIMIT / 2);
    vgpu_used(entry);
  }
  return 0;
}

static pid_t start(void) {
  pid_t child = fork();
  if (child == 0) {
    int file = open(report, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, STDERR_FILENO) < 0) _exit(9);
    _exit(use());
  }
  if (child < 0) exit(2);
  return child;
}

/* The place of a change: places that the library reads are chosen more often. */
static size_t place(unsigned where, unsigned index, unsigned offset) {
  switch (where % PLACES) {
    case 0: return (index % 10) * 4;                          /* magic, version, sizes */
    case 1: return offsetof(vgpu_region, generation);
    case 2: return offsetof(vgpu_region, high);
    case 3: return offsetof(vgpu_region, gate);
    case 4: return offsetof(vgpu_region, uuid) + offset % sizeof((vgpu_region *)0)->uuid;
    case 5: return offsetof(vgpu_region, budget[index % VGPU_DEVICES_MAX]) + offset % 16;
    case 6: return offsetof(vgpu_region, used[offset % VGPU_DEVICES_MAX].slot[index]);
    case 7: return offsetof(vgpu_region, slot[index].owner);
    default: return (index << 16 | offset) % (SIZE - 8);
  }
}

static void change(unsigned char *region, const uint8_t *data, size_t size) {
  for (; size >= CHANGE; data += CHANGE, size -= CHANGE) {
    size_t at = place(data[0] & 0x7f, data[1], data[2] | data[3] << 8), width = sizeof(uint64_t);
    if ((data[0] & 0x7f) % PLACES == 7) width = sizeof(uint32_t);
    memcpy(region + at, data + 4, width);
  }
}

/* Write the file again; a change of 0x7f truncates it. */
static void write_region(const unsigned char *region, const uint8_t *data, size_t size) {
  size_t length = SIZE;
  if (size >= CHANGE && data[0] == 0x7f) length = (data[4] | data[5] << 8 | data[6] << 16) % 120000;
  unlink(path);
  int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file < 0 || write(file, region, SIZE) != SIZE) exit(2);
  if (ftruncate(file, (off_t)length)) exit(2);
  close(file);
}

static uint64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* Write the counts of others and the header, while the process uses the region. */
static void disturb(pid_t child, const uint8_t *data, size_t size) {
  uint64_t until = now_ms() + DEADLINE_MS;
  int file = open(path, O_RDWR);
  void *region = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || region == MAP_FAILED) exit(2);
  siginfo_t gone = {0};
  while (!gone.si_pid && now_ms() < until) {
    change(region, data, size);
    waitid(P_PID, (id_t)child, &gone, WEXITED | WNOWAIT | WNOHANG);
  }
  munmap(region, SIZE);
  close(file);
}

/* The status of a child, -1 when it does not end. */
static int ended(pid_t child) {
  int handle = (int)syscall(SYS_pidfd_open, child, 0), status;
  struct pollfd wait = {handle, POLLIN, 0};
  bool late = handle < 0 || poll(&wait, 1, DEADLINE_MS) == 0;
  if (late) kill(child, SIGKILL);
  if (handle >= 0) close(handle);
  waitpid(child, &status, 0);
  return late ? -1 : status;
}

/* Create a valid region by the library, in a process of its own. */
static void make_good(void) {
  snprintf(path, sizeof path, "/dev/shm/gpuledger-fuzz-%d", (int)getpid());
  snprintf(report, sizeof report, "%s.report", path);
  setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "64m", 1);
  unlink(path);
  if (ended(start()) != 0) exit((fprintf(stderr, "a good region is not usable\n"), 2));
  int file = open(path, O_RDONLY);
  if (file < 0 || read(file, good, sizeof good) != sizeof good) exit(2);
  close(file);
}

static void clear(void) {
  unlink(path);
  unlink(report);
}

/* The standard error of the last process: the library's log, and the reports of sanitizers. */
static void show_report(void) {
  char text[4096];
  int file = open(report, O_RDONLY);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text);
  if (length > 0) fwrite(text, 1, (size_t)length, stderr);
  if (file >= 0) close(file);
}

int fuzz_one(const uint8_t *data, size_t size) {
  static unsigned char region[SIZE];
  if (!path[0]) {
    make_good();
    atexit(clear);
  }
  bool meanwhile = size && data[0] & 0x80;
  memcpy(region, good, sizeof region);
  if (!meanwhile) change(region, data, size);
  write_region(region, data, size);
  pid_t child = start();
  if (meanwhile) disturb(child, data, size);
  int status = ended(child);
  if (status == 0 || (meanwhile && WIFEXITED(status) && WEXITSTATUS(status) == TOGETHER_ABOVE)) return 0;
  if (status < 0) fprintf(stderr, "it does not end\n");
  else if (WIFSIGNALED(status)) fprintf(stderr, "signal %d\n", WTERMSIG(status));
  else fprintf(stderr, "status %d\n", WEXITSTATUS(status));
  show_report();
  return 1;
}

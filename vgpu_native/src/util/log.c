/* Log lines on standard error: few, written whole, and never blocking the program. */
#include "util/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 64, LINE = 512, UNREAD = -1 };

/* The last lines: the hash of each in the upper half, and its time in the lower, in seconds of the
 * monotonic clock from 1 on. */
static uint64_t recent[LINES];
static int allowed = UNREAD;

static int read_level(void) {
  const char *text = getenv("LIBCUDA_LOG_LEVEL");
  if (!text || text[0] < '0' || text[0] > '9') return VGPU_WARNING;
  return text[1] ? VGPU_DEBUG : text[0] - '0';
}

static bool wanted(enum vgpu_level level) {
  int now = __atomic_load_n(&allowed, __ATOMIC_RELAXED);
  if (now == UNREAD) __atomic_store_n(&allowed, now = read_level(), __ATOMIC_RELAXED);
  return (int)level <= now;
}

static uint32_t seconds(void) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  return (uint32_t)clock.tv_sec + 1;
}

/* FNV-1a. */
static uint32_t hash(const char *text) {
  uint32_t sum = 2166136261;
  for (; *text; text++) sum = (sum ^ (unsigned char)*text) * 16777619;
  return sum;
}

/* Whether a line was not logged within this second. A second is full after LINES other lines. */
static bool is_new(const char *text) {
  uint32_t now = seconds(), own = hash(text);
  for (uint64_t *at = recent; at < recent + LINES;) {
    uint64_t before = __atomic_load_n(at, __ATOMIC_RELAXED);
    bool old = (uint32_t)before != now;
    if (!old && before >> 32 == own) return false;
    if (!old) at++;
    else if (__atomic_compare_exchange_n(at, &before, (uint64_t)own << 32 | now, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return true;
  }
  return false;
}

/* Without a reader a write causes SIGPIPE, and a reader that does not read would block the program. */
static void write_if_ready(const char *line, size_t length) {
  struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) return;
  if (write(STDERR_FILENO, line, length) < 0) return;
}

static void print(enum vgpu_level level, const char *text) {
  static const char *const names[] = {"error", "warning", "note", "debug"};
  char line[LINE];
  int end = snprintf(line, sizeof line, "gpuledger: %s (%d): %s", names[level], (int)getpid(), text);
  if (end > LINE - 2) end = LINE - 2;
  line[end] = '\n';
  write_if_ready(line, (size_t)end + 1);
}

/* Block cancellation while logging, because the caller may hold a lock. */
void vgpu_log(enum vgpu_level level, const char *format, ...) {
  int kept = errno, cancel;
  char text[LINE];
  va_list arguments;
  if (!wanted(level)) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (is_new(text)) print(level, text);
  pthread_setcancelstate(cancel, NULL);
  errno = kept;
}

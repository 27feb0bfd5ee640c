/* Log lines on standard error: rarely, whole, and never at the expense of the program. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "vgpu.h"

enum { PLACES = 64, LINE = 512, UNREAD = -1 };

/* When each place in the source spoke last, in seconds of the monotonic clock, by its format. Two
 * places that share one slot keep each other quiet, which is better than a table without end. */
static int64_t spoken[PLACES];
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

static bool quiet_for_a_second(const char *format) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  int64_t now = clock.tv_sec + 1; /* 0 is never */
  int64_t *last = &spoken[((uintptr_t)format >> 3) % PLACES];
  int64_t before = __atomic_load_n(last, __ATOMIC_RELAXED);
  if (before && now - before < 1) return false;
  return __atomic_compare_exchange_n(last, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* A reader that is gone would cost a SIGPIPE, and one that does not read would stop the program. */
static void put(const char *line, size_t length) {
  struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) return;
  if (write(STDERR_FILENO, line, length) < 0) return;
}

void vgpu_log(enum vgpu_level level, const char *format, ...) {
  static const char *const names[] = {"error", "warning", "note", "debug"};
  int kept = errno;
  if (wanted(level) && quiet_for_a_second(format)) {
    char line[LINE];
    int at = snprintf(line, sizeof line, "gpuledger: %s (%d): ", names[level], (int)getpid());
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + at, sizeof line - (size_t)at, format, arguments);
    va_end(arguments);
    at = more < LINE - 1 - at ? at + more : LINE - 2;
    line[at] = '\n';
    put(line, (size_t)at + 1);
  }
  errno = kept;
}

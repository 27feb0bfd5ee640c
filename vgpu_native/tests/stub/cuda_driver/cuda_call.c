/* The start of every call: it is counted, and may be delayed, fail or be refused. */
#include "cuda_stub.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUNCTIONS_MAX 1024

_Atomic uint64_t stub_counts[FUNCTIONS_MAX];

/* Functions whose calls need no check; none until the driver is initialised. */
_Atomic bool stub_plain[FUNCTIONS_MAX];

static _Atomic bool initialised, ended;
static uint64_t delay_ns;
static struct { unsigned n, k; CUresult result; } failure[32];
static unsigned failures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int stream_kind = 1;

static int number_of(const char *name, size_t length)
{
  for (unsigned i = 0; i < stub_function_count; i++)
    if (strlen(stub_functions[i].name) == length && !memcmp(stub_functions[i].name, name, length))
      return (int)i;
  fprintf(stderr, "stub driver: there is no function %.*s\n", (int)length, name);
  return -1;
}

static void settle(void)
{
  for (unsigned i = 0; i < stub_function_count; i++) {
    bool plain = initialised && !ended && !delay_ns;
    plain = plain && stub_functions[i].introduced <= stub_version();
    for (unsigned k = 0; k < failures; k++) plain = plain && failure[k].n != i;
    atomic_store_explicit(&stub_plain[i], plain, memory_order_release);
  }
}

static void fail(int n, unsigned k, CUresult result)
{
  if (n < 0) return;
  unsigned at = 0;
  while (at < failures && failure[at].n != (unsigned)n) at++;
  if (at == sizeof failure / sizeof *failure) return;
  failure[at].n = (unsigned)n;
  failure[at].k = k;
  failure[at].result = result;
  if (at == failures) failures++;
}

static void read_failures(void)
{
  const char *text = getenv("VGPU_STUB_FAIL");
  for (const char *colon; text && (colon = strchr(text, ':')); ) {
    fail(number_of(text, (size_t)(colon - text)), (unsigned)strtoul(colon + 1, NULL, 10),
         CUDA_ERROR_UNKNOWN);
    text = strchr(colon, ',');
    if (text) text++;
  }
}

__attribute__((constructor)) static void read_environment(void)
{
  delay_ns = stub_setting("VGPU_STUB_DELAY_NS", 0);
  read_failures();
}

void stub_lock_calls(void) { pthread_mutex_lock(&lock); }
void stub_unlock_calls(void) { pthread_mutex_unlock(&lock); }

void stub_forget_calls(void)
{
  initialised = false;
  settle();
}

/* The driver's teardown takes a while, and no thread may call it from then on. Without locks, because the
 * exiting thread may hold them. */
static void end(void)
{
  uint64_t ns = stub_setting("VGPU_STUB_TEARDOWN_NS", 0);
  if (!ns) return;
  ended = true;
  settle();
  nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

static void refuse_after_end(const char *name)
{
  if (!ended) return;
  fprintf(stderr, "stub driver: %s was called after the driver's end\n", name);
  abort();
}

void stub_initialised(void)
{
  pthread_mutex_lock(&lock);
  static bool registered;
  if (!registered) stub_watch_forks();
  if (!registered) atexit(end);
  registered = initialised = true;
  settle();
  pthread_mutex_unlock(&lock);
}

/* Functions that may be called before cuInit. */
static bool needs_nothing(const char *base)
{
  static const char *const these[] = {"cuInit", "cuDriverGetVersion", "cuGetProcAddress",
                                      "cuGetErrorString", "cuGetErrorName", "cuGetExportTable"};
  for (unsigned i = 0; i < sizeof these / sizeof *these; i++)
    if (!strcmp(base, these[i])) return true;
  return false;
}

static bool chosen_to_fail(unsigned n, CUresult *result)
{
  for (unsigned i = 0; i < failures; i++)
    if (failure[i].n == n && failure[i].k && --failure[i].k == 0) {
      *result = failure[i].result;
      return true;
    }
  return false;
}

bool stub_begin(unsigned n, CUresult *result)
{
  const struct stub_function *function = &stub_functions[n];
  refuse_after_end(function->name);
  if (delay_ns) {
    struct timespec pause = {(time_t)(delay_ns / 1000000000u), (long)(delay_ns % 1000000000u)};
    nanosleep(&pause, NULL);
  }
  pthread_mutex_lock(&lock);
  bool go_on = false;
  if (chosen_to_fail(n, result)) {
    go_on = false;
  } else if (function->introduced > stub_version()) {
    *result = CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
  } else if (!initialised && !needs_nothing(function->base)) {
    *result = CUDA_ERROR_NOT_INITIALIZED;
  } else {
    go_on = true;
  }
  pthread_mutex_unlock(&lock);
  return go_on;
}

int stub_enter(int stream)
{
  int before = stream_kind;
  stream_kind = stream;
  return before;
}

void stub_leave(int before)
{
  stream_kind = before;
}

bool stub_per_thread(void)
{
  return stream_kind == 2;
}

EXPORT uint64_t vgpu_stub_calls(const char *function)
{
  int n = number_of(function, strlen(function));
  return n < 0 ? 0 : atomic_load(&stub_counts[n]);
}

EXPORT void vgpu_stub_fail(const char *function, unsigned k, int result)
{
  pthread_mutex_lock(&lock);
  fail(number_of(function, strlen(function)), k, (CUresult)result);
  settle();
  pthread_mutex_unlock(&lock);
}

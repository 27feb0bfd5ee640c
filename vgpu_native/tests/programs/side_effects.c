/* Use the driver, and fail if the process changed: its umask, signal handlers and mask, locale, open files,
 * directory, errno. Returns 42. */
#include <cuda.h>
#include <dirent.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIGNALS = 65, FILES = 64 };

struct state {
  mode_t mask;
  struct {
    void (*handler)(int);
    int flags;
    uint64_t mask; /* the rest of a sigset_t is not set */
  } actions[SIGNALS];
  sigset_t blocked;
  stack_t stack;
  char locale[256], directory[256], files[FILES][64];
  int count;
};

/* Open files by number and by target. */
static void list_files(struct state *state) {
  DIR *directory = opendir("/proc/self/fd");
  for (struct dirent *entry; (entry = readdir(directory));) {
    char path[300];
    if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory)) continue;
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    if (readlink(path, state->files[state->count], 63) < 0) exit(3);
    if (++state->count == FILES) exit(3);
  }
  closedir(directory);
}

static void look_at_signal(struct state *state, int signal) {
  struct sigaction action = {.sa_flags = 0};
  sigaction(signal, NULL, &action);
  state->actions[signal].handler = action.sa_handler;
  state->actions[signal].flags = action.sa_flags;
  memcpy(&state->actions[signal].mask, &action.sa_mask, sizeof state->actions[signal].mask);
}

static void look(struct state *state) {
  memset(state, 0, sizeof *state);
  umask(state->mask = umask(0));
  for (int i = 1; i < SIGNALS; i++) look_at_signal(state, i);
  sigprocmask(SIG_SETMASK, NULL, &state->blocked);
  sigaltstack(NULL, &state->stack);
  snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
  if (!getcwd(state->directory, sizeof state->directory)) exit(3);
  list_files(state);
}

static void same(const char *what, const void *before, const void *after, size_t size) {
  if (memcmp(before, after, size) == 0) return;
  fprintf(stderr, "%s changed\n", what);
  exit(1);
}

#define SAME(part) same(#part, &before.part, &after.part, sizeof before.part)

static void check(CUresult result) {
  if (result == CUDA_SUCCESS && errno == 77) return;
  fprintf(stderr, "result %d, errno %d\n", result, errno);
  exit(1);
}

static void handler(int signal) {}

static void use_driver(void) {
  CUdevice device;
  CUcontext context;
  CUdeviceptr pointer;
  size_t available, total;
  errno = 77;
  check(cuInit(0));
  check(cuDeviceGet(&device, 0));
  check(cuDevicePrimaryCtxRetain(&context, device));
  check(cuCtxSetCurrent(context));
  check(cuMemAlloc(&pointer, 1 << 20));
  check(cuMemGetInfo(&available, &total));
  check(cuMemFree(pointer));
  if (cuMemAlloc(&pointer, (size_t)1 << 50) != CUDA_ERROR_OUT_OF_MEMORY) exit(4);
  if (errno != 77) exit(5);
}

int main(void) {
  static struct state before, after;
  umask(027);
  signal(SIGUSR1, handler);
  signal(SIGUSR2, handler);
  signal(SIGPIPE, SIG_IGN);
  look(&before);
  use_driver();
  look(&after);
  SAME(mask), SAME(actions), SAME(blocked), SAME(stack);
  SAME(locale), SAME(directory), SAME(files), SAME(count);
  return 42;
}

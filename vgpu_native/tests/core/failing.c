/* ask, while calls of the system fail for some time: `failing CALL PATH ERRNO COUNT WORD…`. The first COUNT
 * calls fail: `open` of a path that ends in PATH, `mmap` of a file, or `thread`, of pthread_create. `files`
 * limits the number of open files to COUNT instead. */
#define main ask_main
#include "ask.c"
#undef main

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

static const char *call = "", *ending = "";
static int error, left;

static bool fails(const char *name) {
  if (strcmp(name, call) || left <= 0) return false;
  left--;
  errno = error;
  return true;
}

static bool ends(const char *path) {
  size_t length = strlen(path), end = strlen(ending);
  return length >= end && !strcmp(path + length - end, ending);
}

int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (ends(path) && fails("open")) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  if (file >= 0 && fails("mmap")) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  typedef int creating(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (fails("thread")) return error;
  return ((creating *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, argument);
}

int main(int count, char **words) {
  if (count < 5) return 2;
  call = words[1];
  ending = words[2];
  error = atoi(words[3]);
  left = atoi(words[4]);
  if (!strcmp(call, "files")) limit_files((rlim_t)left);
  return ask_main(count - 4, words + 4);
}

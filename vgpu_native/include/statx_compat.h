/* fstat and stat as system calls: their symbols would bind the library to glibc 2.33. */
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int vgpu_fstat(int file, struct stat *state) {
  return (int)syscall(SYS_fstat, file, state);
}

static inline int vgpu_stat(const char *path, struct stat *state) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, state, 0);
}

#include "util/passing_errors.h"

#include <errno.h>

bool vgpu_passes(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN || error == EINTR;
}

const char *vgpu_remedy(int error) {
  switch (error) {
    case EMFILE: return "Close files, or raise the limit of open files (ulimit -n)";
    case ENFILE: return "Raise fs.file-max of the node";
    case ENOMEM: return "Raise the container's memory limit, or map fewer files";
    case EAGAIN: return "Raise the container's limit of processes and threads";
    default: return "The next call tries again";
  }
}

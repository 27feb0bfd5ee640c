/* Every allocator up to the limit: the free memory is granted, one granule more is refused.
 *
 *   limits VIEW    VIEW is a program that prints the bytes that the device itself counts as used
 *
 * A line for each: name, MiB that were free and granted, MiB that the device counted beyond, and a verdict,
 * which is `ok` or names the failure. */
#include "allocators.h"

static size_t left(void) {
  size_t bytes, total;
  MUST(cuMemGetInfo(&bytes, &total));
  return bytes;
}

/* The device's own count, read by a process without a limit. */
static int64_t counted(const char *view) {
  char command[4096], answer[64] = "";
  snprintf(command, sizeof command, "env -u LD_PRELOAD '%s'", view);
  FILE *pipe = popen(command, "r");
  if (pipe == NULL) return -1;
  if (fgets(answer, sizeof answer, pipe) == NULL) answer[0] = 0;
  return pclose(pipe) == 0 ? strtoll(answer, NULL, 10) : -1;
}

static const char *judge(const struct allocator *one, size_t bytes, const char *view, int64_t *more) {
  struct taken taken = {0}, other = {0};
  int64_t before = counted(view);
  CUresult result = one->take(bytes, &taken);
  if (result != CUDA_SUCCESS) return "NOT GIVEN what was free";
  int64_t now_used = counted(view);
  *more = before < 0 || now_used < 0 ? 0 : now_used - before - (int64_t)bytes;
  result = one->take(one->granule, &other);
  if (result == CUDA_SUCCESS) return one->give(&other), one->give(&taken), "GIVEN ABOVE the limit";
  one->give(&taken);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return "REFUSED with another error";
  result = one->take(bytes + one->granule, &other);
  if (result == CUDA_SUCCESS) return one->give(&other), "GIVEN ABOVE the limit at once";
  return left() + one->granule < bytes ? "NOT GIVEN BACK" : "ok";
}

/* The first use of a pool or a graph costs the driver memory that stays, so each is used once before. */
static void warm(const struct allocator *one) {
  struct taken taken = {0};
  if (one->take(one->granule, &taken) == CUDA_SUCCESS) one->give(&taken);
}

int main(int count, char **arguments) {
  const char *view = count > 1 ? arguments[1] : "false";
  open_device();
  for (const struct allocator *one = allocators(); one->name; one++) {
    int64_t more = 0;
    warm(one);
    size_t bytes = left() / one->granule * one->granule;
    const char *verdict = bytes ? judge(one, bytes, view, &more) : "nothing was free";
    printf("%s\t%.0f\t%.1f\t%s\n", one->name, (double)bytes / MIB, (double)more / MIB, verdict);
    fflush(stdout);
  }
  return 0;
}

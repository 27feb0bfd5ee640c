/* A program of the runtime API, by a real libcudart, up to the limit.
 *
 *   runtime LIBCUDART
 *
 * Prints the runtime's version, the MiB in total, the MiB given in pieces of 16 MiB, the error and its name,
 * the same for stream-ordered memory, and the library that holds the launch function that it resolved. The
 * status is 77 if the runtime cannot start here, with its reason on standard error. */
#include "gpu.h"

enum { ABSENT = 77, PIECES_MAX = 8192 };

static void *library;

static void *look_up(const char *name) { return dlsym(library, name); }

static const char *name_in_runtime(int error) {
  const char *(*name)(int) = (const char *(*)(int))look_up("cudaGetErrorName");
  return name ? name(error) : "unknown";
}

/* Take pieces until one is refused, then give all back. */
static void fill(const char *kind, int (*take)(void **, size_t), int (*give)(void *)) {
  static void *pieces[PIECES_MAX];
  int error = 0, taken = 0;
  while (taken < PIECES_MAX && (error = take(&pieces[taken], 16 * MIB)) == 0) taken++;
  printf("%s_mib\t%d\n%s_error\t%d\t%s\n", kind, taken * 16, kind, error, name_in_runtime(error));
  while (taken) give(pieces[--taken]);
}

static int take_async(void **at, size_t bytes) {
  int (*take)(void **, size_t, void *) = (int (*)(void **, size_t, void *))look_up("cudaMallocAsync");
  return take ? take(at, bytes, NULL) : 801;
}

static int give_async(void *at) {
  int (*give)(void *, void *) = (int (*)(void *, void *))look_up("cudaFreeAsync");
  return give ? give(at, NULL) : 801;
}

/* The library of the launch function that the runtime itself would call. */
static void show_launch(void) {
  int (*by_version)(const char *, void **, unsigned, unsigned long long, int *) =
      (int (*)(const char *, void **, unsigned, unsigned long long, int *))look_up("cudaGetDriverEntryPointByVersion");
  int (*plain)(const char *, void **, unsigned long long, int *) =
      (int (*)(const char *, void **, unsigned long long, int *))look_up("cudaGetDriverEntryPoint");
  void *launch = NULL;
  int status;
  Dl_info where = {0};
  if (by_version) by_version("cuLaunchKernel", &launch, 12000, 0, &status);
  else if (plain) plain("cuLaunchKernel", &launch, 0, &status);
  if (launch && dladdr(launch, &where) && where.dli_fname) printf("launch_in\t%s\n", where.dli_fname);
}

int main(int count, char **arguments) {
  int version = 0;
  size_t free_bytes = 0, total = 0;
  library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  if (!library) return fprintf(stderr, "%s\n", count > 1 ? dlerror() : "usage: runtime LIBCUDART"), ABSENT;
  int (*version_of)(int *) = (int (*)(int *))look_up("cudaRuntimeGetVersion");
  int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))look_up("cudaMemGetInfo");
  int (*take)(void **, size_t) = (int (*)(void **, size_t))look_up("cudaMalloc");
  int (*give)(void *) = (int (*)(void *))look_up("cudaFree");
  if (!version_of || !info || !take || !give) return fprintf(stderr, "%s is not a libcudart\n", arguments[1]), ABSENT;
  version_of(&version);
  int error = info(&free_bytes, &total);
  printf("version\t%d\n", version);
  if (error) return fprintf(stderr, "cudaMemGetInfo: %s (%d)\n", name_in_runtime(error), error), ABSENT;
  printf("total_mib\t%zu\nfree_mib\t%zu\n", (size_t)(total / MIB), (size_t)(free_bytes / MIB));
  fill("cudaMalloc", take, give);
  fill("cudaMallocAsync", take_async, give_async);
  show_launch();
  return 0;
}

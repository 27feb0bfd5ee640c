/* Launch many kernels for the first time, each of which the driver has to load.
 *
 *   fresh KERNELS NANOSECONDS BULK
 *
 * One module has KERNELS kernels with BULK instructions each, besides a loop of NANOSECONDS. Prints
 * milliseconds: `load_ms` of the module, `launch_ms` of all first launches until they have ended, `again_ms`
 * of the same launches for the second time, and of the longest first launch. */
#include "gpu.h"

enum { KERNELS_MAX = 256, LINE = 96 };

static char *text_of(int kernels, int bulk) {
  size_t room = 4096 + (size_t)kernels * (2048 + (size_t)bulk * LINE), at = 0;
  char *text = malloc(room);
  if (!text) exit(1);
  at += (size_t)sprintf(text, ".version 6.0\n.target sm_50\n.address_size 64\n");
  for (int i = 0; i < kernels; i++) {
    at += (size_t)sprintf(text + at,
                          ".visible .entry work_%d(.param .u64 turns, .param .u64 sums) {\n"
                          "  .reg .u64 %%left, %%sums;\n  .reg .u32 %%value;\n  .reg .pred %%more, %%none;\n"
                          "  ld.param.u64 %%left, [turns];\n  ld.param.u64 %%sums, [sums];\n"
                          "  mov.u32 %%value, %%clock;\n",
                          i);
    for (int k = 0; k < bulk; k++)
      at += (size_t)sprintf(text + at, "  mad.lo.u32 %%value, %%value, %d, %d;\n  xor.b32 %%value, %%value, %d;\n",
                            1664525 + 2 * k, 1013904223 + i, k * 7 + i);
    at += (size_t)sprintf(text + at,
                          "again:\n  mad.lo.u32 %%value, %%value, 1664525, 1013904223;\n"
                          "  sub.u64 %%left, %%left, 1;\n  setp.ne.u64 %%more, %%left, 0;\n  @%%more bra again;\n"
                          "  setp.eq.u64 %%none, %%sums, 0;\n  @%%none bra done;\n  st.global.u32 [%%sums], %%value;\n"
                          "done:\n  ret;\n}\n");
  }
  return text;
}

static double since(uint64_t begun) { return (double)(now() - begun) / 1e6; }

/* Launch each kernel once and wait for all; return the longest launch. */
static double launch_all(CUfunction *kernels, int count, uint64_t ns) {
  double longest = 0;
  for (int i = 0; i < count; i++) {
    uint64_t begun = now();
    MUST(launch_work(kernels[i], ns, 0, 0));
    double took = since(begun);
    if (took > longest) longest = took;
  }
  MUST(cuCtxSynchronize());
  return longest;
}

int main(int count, char **arguments) {
  if (count != 4) return fprintf(stderr, "usage: fresh KERNELS NANOSECONDS BULK\n"), 2;
  static CUfunction kernels[KERNELS_MAX];
  int number = atoi(arguments[1]);
  uint64_t ns = strtoull(arguments[2], NULL, 10);
  CUmodule module;
  if (number > KERNELS_MAX) number = KERNELS_MAX;
  open_device();
  char *text = text_of(number, atoi(arguments[3]));
  uint64_t begun = now();
  MUST(cuModuleLoadData(&module, text));
  printf("load_ms\t%.2f\n", since(begun));
  begun = now();
  for (int i = 0; i < number; i++) {
    char name[32];
    snprintf(name, sizeof name, "work_%d", i);
    MUST(cuModuleGetFunction(&kernels[i], module, name));
  }
  double longest = launch_all(kernels, number, ns);
  printf("launch_ms\t%.2f\nlongest_ms\t%.2f\n", since(begun), longest);
  begun = now();
  launch_all(kernels, number, ns);
  printf("again_ms\t%.2f\n", since(begun));
  free(text);
  return 0;
}

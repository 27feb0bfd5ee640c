/* Settings of the environment: a second parser of the grammar must read each size alike, and an invalid
 * text must not give more than its digits. */
#include "core/limits/environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop.h"
#include "vgpu.h"

enum { TEXT_MAX = 256 };
typedef unsigned __int128 wide;

/* The library's log, which only has to be callable here. */
void vgpu_log(enum vgpu_level level, const char *format, ...) {
  char text[1024];
  va_list more;
  va_start(more, format);
  vsnprintf(text, sizeof text, format, more);
  va_end(more);
}

/* The leading number of a text, at most 2^64, and the text after it. */
static wide number(const char *text, const char **rest) {
  int hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  const char *digits = hex ? "0123456789abcdefABCDEF" : "0123456789";
  wide value = 0;
  text += hex ? 2 : 0;
  size_t count = strspn(text, digits);
  for (size_t i = 0; i < count; i++) {
    const char *digit = strchr(digits, text[i]);
    unsigned worth = (unsigned)(digit - digits);
    value = value * (hex ? 16 : 10) + (worth > 15 ? worth - 6 : worth);
    if (value >> 64) value = (wide)1 << 64;
  }
  *rest = count ? text + count : NULL;
  return value;
}

/* Whether a text is a size, and its bytes. */
static int is_size(const char *text, wide *bytes) {
  static const char units[] = "kKmMgGtT";
  const char *rest, *unit;
  *bytes = number(text, &rest);
  if (rest == NULL) return 0;
  if (*rest && (unit = strchr(units, *rest))) {
    *bytes <<= 10 * ((unit - units) / 2 + 1);
    rest++;
    if (*rest == 'i' || *rest == 'I') rest++;
  }
  if (*rest == 'b' || *rest == 'B') rest++;
  return *rest == 0 && *bytes >> 64 == 0;
}

/* No reading of a text may give more than its first digits with the largest unit. */
static wide most(const char *text) {
  const char *rest;
  wide value = number(text, &rest);
  return rest == NULL ? 0 : value << 40;
}

static int complain(const char *what, const char *text, uint64_t found) {
  fprintf(stderr, "%s: \"%s\" gave %llu\n", what, text, (unsigned long long)found);
  return 1;
}

static int look_at_size(const char *text) {
  bool good;
  wide bytes;
  uint64_t found = vgpu_size(text, &good);
  if (good != is_size(text, &bytes)) return complain(good ? "taken" : "refused", text, found);
  if (good && found != (uint64_t)bytes) return complain("another size", text, found);
  if (!good && found > most(text)) return complain("more than it says", text, found);
  return 0;
}

static int look_at_limits(const char *text) {
  bool good;
  uint64_t bytes = vgpu_size(text, &good);
  setenv("CUDA_DEVICE_MEMORY_LIMIT_0", text, 1);
  setenv("CUDA_DEVICE_SM_LIMIT", text, 1);
  setenv("CUDA_DISABLE_CONTROL", text, 1);
  setenv("GPU_CORE_UTILIZATION_POLICY", text, 1);
  uint64_t limit = vgpu_environment_memory(0);
  if (limit == VGPU_NO_LIMIT && !(good && (bytes == 0 || bytes == VGPU_NO_LIMIT))) return complain("no limit", text, limit);
  unsigned cores = vgpu_environment_cores(0);
  if (cores < 1 || cores > 100) return complain("percent", text, cores);
  vgpu_switch("CUDA_DISABLE_CONTROL");
  vgpu_environment_cores_off();
  return 0;
}

int fuzz_one(const uint8_t *data, size_t size) {
  char text[TEXT_MAX + 1];
  if (size > TEXT_MAX) size = TEXT_MAX;
  memcpy(text, data, size);
  text[size] = 0;
  return look_at_size(text) || look_at_limits(text);
}

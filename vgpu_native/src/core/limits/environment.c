/* Limits and switches from environment variables. An invalid value never widens a limit. */
#include "core/limits/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "vgpu.h"

enum { NAME = 64 };

/* The value of a character as a digit, 16 if it is not one. */
static unsigned digit_of(char character) {
  if (character >= '0' && character <= '9') return (unsigned)(character - '0');
  if (character >= 'a' && character <= 'f') return (unsigned)(character - 'a') + 10;
  if (character >= 'A' && character <= 'F') return (unsigned)(character - 'A') + 10;
  return 16;
}

/* The number at *text, at most UINT64_MAX; *text moves behind its digits. */
static uint64_t digits(const char **text, bool *good) {
  const char *at = *text;
  unsigned base = 10;
  if (at[0] == '0' && (at[1] | 0x20) == 'x') base = 16, at += 2;
  const char *first = at;
  uint64_t value = 0;
  for (unsigned digit; (digit = digit_of(*at)) < base; at++) {
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, digit, &value)) {
      value = UINT64_MAX;
      *good = false;
    }
  }
  if (at == first) *good = false;
  *text = at;
  return value;
}

/* The exponent of two of a unit at *text; *text moves behind the unit. */
static unsigned unit(const char **text) {
  static const char letters[] = "kmgt";
  const char *at = *text;
  unsigned shift = 0;
  for (unsigned i = 0; letters[i]; i++)
    if ((*at | 0x20) == letters[i]) shift = 10 * (i + 1);
  if (shift) at++;
  if (shift && (*at | 0x20) == 'i') at++;
  if ((*at | 0x20) == 'b') at++;
  *text = at;
  return shift;
}

uint64_t vgpu_size(const char *text, bool *good) {
  *good = true;
  uint64_t value = digits(&text, good);
  if (*text == '.') {
    *good = false;
    text++;
    while (*text >= '0' && *text <= '9') text++;
  }
  unsigned shift = unit(&text);
  if (*text) *good = false;
  /* A number that is too large does not mean `no limit`. */
  if (value > UINT64_MAX >> shift || (!*good && value == VGPU_NO_LIMIT)) {
    *good = false;
    return VGPU_NO_LIMIT - 1;
  }
  return value << shift;
}

/* The value of the variable of one device, or else of all devices; NULL if neither is set. */
static const char *variable(const char *name, unsigned ordinal, char chosen[NAME]) {
  snprintf(chosen, NAME, "%s_%u", name, ordinal);
  const char *text = getenv(chosen);
  if (text) return text;
  snprintf(chosen, NAME, "%s", name);
  return getenv(chosen);
}

uint64_t vgpu_environment_memory(unsigned ordinal) {
  char name[NAME];
  const char *text = variable("CUDA_DEVICE_MEMORY_LIMIT", ordinal, name);
  if (!text) return VGPU_NO_LIMIT;
  bool good;
  uint64_t bytes = vgpu_size(text, &good);
  if (good) return bytes ? bytes : VGPU_NO_LIMIT;
  vgpu_log(
      VGPU_ERROR,
      "%s=\"%s\" is not a size; %llu bytes are the limit. Write digits and k, m, g or t, as 1536m",
      name, text, (unsigned long long)bytes);
  return bytes;
}

unsigned vgpu_environment_cores(unsigned ordinal) {
  char name[NAME];
  const char *text = variable("CUDA_DEVICE_SM_LIMIT", ordinal, name);
  if (!text) return 100;
  bool good = true;
  const char *end = text;
  uint64_t percent = digits(&end, &good);
  good = good && !*end;
  if (good) return percent && percent < 100 ? (unsigned)percent : 100;
  unsigned strict = percent < 1 ? 1 : percent > 100 ? 100 : (unsigned)percent;
  vgpu_log(VGPU_ERROR, "%s=\"%s\" is not a percentage; %u is the limit. Write digits only, as 30",
           name, text, strict);
  return strict;
}

static bool among(const char *text, const char *const words[]) {
  for (; *words; words++)
    if (!strcasecmp(text, *words)) return true;
  return false;
}

bool vgpu_switch(const char *name) {
  static const char *const on[] = {"true", "1", "yes", "on", NULL};
  static const char *const off[] = {"false", "0", "no", "off", "", NULL};
  const char *text = getenv(name);
  if (!text || among(text, off)) return false;
  if (among(text, on)) return true;
  vgpu_log(VGPU_WARNING, "%s=\"%s\" is neither true nor false, and counts as false", name, text);
  return false;
}

bool vgpu_environment_cores_off(void) {
  static const char *const off[] = {"disable", "off", "false", NULL};
  static const char *const on[] = {"force", "default", "enable", "on", "true", "", NULL};
  static const char *const names[] = {"GPU_CORE_UTILIZATION_POLICY", "CoreLimitSwitch", NULL};
  for (const char *const *name = names; *name; name++) {
    const char *text = getenv(*name);
    if (!text) continue;
    if (among(text, off)) return true;
    if (!among(text, on))
      vgpu_log(VGPU_WARNING, "%s=\"%s\" is not a known policy; the limit of time holds", *name, text);
  }
  return false;
}

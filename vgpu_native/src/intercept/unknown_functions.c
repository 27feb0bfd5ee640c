#include "intercept/unknown_functions.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"

/* The hashes of what was logged. More names are not logged. */
enum { LOGGED_MAX = 64 };
static uint64_t logged[LOGGED_MAX];

/* FNV-1a, never 0. */
static uint64_t hash_of(const char *name, int version) {
  uint64_t hash = 14695981039346656037ULL ^ (unsigned)version;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211ULL;
  return hash | 1;
}

static bool is_new(uint64_t hash) {
  for (unsigned i = 0; i < LOGGED_MAX; i++) {
    uint64_t there = __atomic_load_n(&logged[i], __ATOMIC_RELAXED);
    if (!there && __atomic_compare_exchange_n(&logged[i], &there, hash, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return true;
    if (there == hash) return false;
  }
  return false;
}

/* Whether the name is one of a function that may use memory or time of a device. */
static bool may_use_device(const char *name) {
  static const char *const words[] = {"Alloc", "Create", "Launch", "Map", "Mem", "Pool", "Import"};
  for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
    if (strstr(name, words[i])) return true;
  return false;
}

void vgpu_log_unknown_function(const char *name, int version) {
  if (!is_new(hash_of(name, version))) return;
  enum vgpu_level level = may_use_device(name) ? VGPU_WARNING : VGPU_NOTE;
  char of_version[32] = "";
  if (version) snprintf(of_version, sizeof of_version, " of version %d", version);
  vgpu_log(level, "%s%s is a function of a newer driver, which this library does not limit. Update libvgpu.so",
           name, of_version);
}

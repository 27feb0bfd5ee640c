/* TARGET SECONDS SEED DIRECTORY CORPUS...: fuzz for a time, starting with the files of the corpus.
 *
 * Inputs that reach new code are written to DIRECTORY. Status 1 and the file DIRECTORY/found: the target
 * reported a failure; DIRECTORY/last: it crashed, or was killed. */
#include "loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_MAX = 4096, REACHED = 1 << 16, PATH_ROOM = 4096 };

void fuzz_seed(uint64_t seed);

static struct { uint8_t *data; size_t size; } kept[KEPT_MAX];
static unsigned kept_count;
static uint8_t *reached, known[REACHED]; /* `reached` is shared with children of the target */
static uint8_t *last;                    /* the running input, in a mapped file that outlives a crash */
static uintptr_t origin;

/* gcc calls it in every block that is compiled with -fsanitize-coverage=trace-pc. */
void __sanitizer_cov_trace_pc(void) {
  uintptr_t place = (uintptr_t)__builtin_return_address(0) - origin;
  if (reached) reached[(place ^ place >> 16) % REACHED] = 1;
}

static void keep(const uint8_t *data, size_t size) {
  unsigned at = kept_count < KEPT_MAX ? kept_count++ : fuzz_random(KEPT_MAX);
  free(kept[at].data);
  kept[at].data = malloc(size + 1);
  if (kept[at].data == NULL) abort();
  memcpy(kept[at].data, data, size);
  kept[at].size = size;
}

/* Whether a new block was reached; eight blocks are compared at once. */
static int news(void) {
  int found = 0;
  for (unsigned i = 0; i < REACHED; i += sizeof(uint64_t)) {
    uint64_t now, before;
    memcpy(&now, reached + i, sizeof now);
    memcpy(&before, known + i, sizeof before);
    if ((now & ~before) == 0) continue;
    memcpy(known + i, &now, sizeof now);
    found = 1;
  }
  return found;
}

static void save(const char *directory, const char *name, const uint8_t *data, size_t size) {
  char path[PATH_ROOM];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file)) perror(path);
}

static void read_file(const char *path) {
  uint8_t data[FUZZ_BYTES_MAX];
  FILE *file = fopen(path, "rb");
  if (file == NULL) return;
  size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  keep(data, size);
}

static void read_corpus(const char *directory) {
  DIR *found = opendir(directory);
  char path[PATH_ROOM];
  if (found == NULL) return;
  for (struct dirent *one; (one = readdir(found)) != NULL;) {
    if (one->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", directory, one->d_name);
    read_file(path);
  }
  closedir(found);
}

static void map_last(const char *directory) {
  char path[PATH_ROOM];
  snprintf(path, sizeof path, "%s/last", directory);
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ftruncate(file, FUZZ_BYTES_MAX + 8)) { perror(path); exit(2); }
  last = mmap(NULL, FUZZ_BYTES_MAX + 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  reached = mmap(NULL, REACHED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (last == MAP_FAILED || reached == MAP_FAILED) exit(2);
  close(file);
}

/* A copy of exactly the input's size, so that a sanitizer detects reads beyond it. */
static int run(const char *directory, const uint8_t *data, size_t size) {
  uint64_t length = size;
  memcpy(last, &length, sizeof length);
  memcpy(last + 8, data, size);
  uint8_t *exact = malloc(size ? size : 1);
  memcpy(exact, data, size);
  int found = fuzz_one(exact, size);
  free(exact);
  if (found) save(directory, "found", data, size);
  return found;
}

static size_t next(uint8_t *data) {
  unsigned at = fuzz_random(kept_count);
  memcpy(data, kept[at].data, kept[at].size);
  return fuzz_mutate(data, kept[at].size);
}

static int loop(const char *directory, time_t until) {
  uint8_t data[FUZZ_BYTES_MAX];
  unsigned long runs = 0, seeds = kept_count;
  for (unsigned i = 0; i < kept_count; i++, runs++)
    if (run(directory, kept[i].data, kept[i].size)) return 1;
  news();
  for (; time(NULL) < until; runs++) {
    size_t size = next(data);
    if (run(directory, data, size)) return 1;
    if (!news()) continue;
    char name[32];
    snprintf(name, sizeof name, "new-%lu", runs);
    save(directory, name, data, size);
    keep(data, size);
  }
  printf("%lu inputs, %lu seeds, %lu kept: nothing found\n", runs, seeds, kept_count - seeds);
  return 0;
}

int main(int count, char **arguments) {
  if (count < 4) return fprintf(stderr, "usage: TARGET SECONDS SEED DIRECTORY CORPUS...\n"), 2;
  origin = (uintptr_t)&main;
  fuzz_seed(strtoull(arguments[2], NULL, 10));
  map_last(arguments[3]);
  for (int i = 4; i < count; i++) read_corpus(arguments[i]);
  if (kept_count == 0) keep((const uint8_t *)"", 0);
  return loop(arguments[3], time(NULL) + atol(arguments[1]));
}

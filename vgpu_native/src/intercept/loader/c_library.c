/* The loader's list of objects, and the symbol table of the C library in it. Reading the table is the only
 * way to a function whose name and versions this library exports itself: any reference to it, and any
 * look-up by the loader, may end here.
 *
 * Nothing here calls a function that a tool may replace, because the tool may look that one up right now. */
#include "intercept/loader/c_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* Musl lacks it. */
#pragma weak dladdr1

/* What the dynamic section of an object names. */
struct names {
  const ElfW(Sym) *symbols;
  const char *text;
  const uint32_t *hash; /* GNU's table */
  const char *soname;
};

/* glibc has relocated the addresses in most dynamic sections, other C libraries have not. */
static const void *at(const struct link_map *object, ElfW(Addr) address) {
  return (const void *)(address < object->l_addr ? object->l_addr + address : address);
}

static struct names names_of(const struct link_map *object) {
  struct names names = {NULL};
  ElfW(Addr) soname = 0;
  for (const ElfW(Dyn) *entry = object->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) names.symbols = at(object, entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names.text = at(object, entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) names.hash = at(object, entry->d_un.d_ptr);
    if (entry->d_tag == DT_SONAME) soname = entry->d_un.d_val;
  }
  if (names.text && soname) names.soname = names.text + soname;
  return names;
}

static uint32_t hash_of(const char *name) {
  uint32_t hash = 5381;
  for (; *name; name++) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

/* The symbol of this name that the object defines, NULL if it defines none. */
static const ElfW(Sym) *defined(const struct names *names, const char *name) {
  uint32_t hash = hash_of(name), count = names->hash[0], first = names->hash[1];
  const uint32_t *buckets = names->hash + 4 + names->hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t *chain = buckets + count;
  uint32_t i = count ? buckets[hash % count] : 0;
  for (bool last = !i; !last; i++) {
    const ElfW(Sym) *symbol = &names->symbols[i];
    bool same = (chain[i - first] | 1) == (hash | 1) && vgpu_same_text(names->text + symbol->st_name, name);
    if (same && symbol->st_shndx != SHN_UNDEF) return symbol;
    last = chain[i - first] & 1;
  }
  return NULL;
}

static bool begins(const char *text, const char *beginning) {
  while (*beginning && *text == *beginning) text++, beginning++;
  return !*beginning;
}

static const char *file_of(const char *path) {
  const char *file = path;
  for (; *path; path++)
    if (*path == '/') file = path + 1;
  return file;
}

/* Before glibc 2.34 libdl.so.2 has these functions. Musl's library is its loader, often without a name. */
static bool is_c_library(const char *soname, const char *path) {
  if (soname) return begins(soname, "libc.") || begins(soname, "libdl.");
  return path && begins(file_of(path), "ld-musl-");
}

/* The object with an address, NULL if there is none. */
static struct link_map *object_of(const void *address) {
  Dl_info info;
  struct link_map *object = NULL;
  bool is_one = dladdr1 && dladdr1(address, &info, (void **)&object, RTLD_DL_LINKMAP);
  return is_one ? object : NULL;
}

static const char here;

/* The first object of the list that has this library. Musl's handle of the program is such an object. */
static struct link_map *first_object(void) {
  struct link_map *object = object_of(&here);
  while (object && object->l_prev) object = object->l_prev;
  return object ? object : dlopen(NULL, RTLD_LAZY);
}

void *vgpu_c_library_function(const char *name) {
  for (const struct link_map *object = first_object(); object; object = object->l_next) {
    struct names names = names_of(object);
    if (!is_c_library(names.soname, object->l_name) || !names.symbols || !names.hash) continue;
    const ElfW(Sym) *symbol = defined(&names, name);
    if (symbol) return (void *)(object->l_addr + symbol->st_value);
  }
  return NULL;
}

/* Objects come in the order in which they were loaded, which is the order of searches. */
bool vgpu_is_behind(const void *address) {
  const struct link_map *own = object_of(&here), *object = object_of(address);
  while (object && object != own) object = object->l_prev;
  return object && object == own;
}

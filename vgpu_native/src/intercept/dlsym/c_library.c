/* The loader's list of objects, and the symbol table of the C library in it. Reading the table is the only
 * way to a function whose name and versions this library exports itself: any reference to it, and any
 * look-up by the loader, may end here. */
#include "intercept/dlsym/c_library.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What the dynamic section of an object names. */
struct names {
  const ElfW(Sym) *symbols;
  const char *text;
  const uint32_t *hash; /* GNU's table */
  const char *soname;
};

/* glibc has relocated the addresses in most dynamic sections, other C libraries have not. */
static const void *at(const struct dl_phdr_info *object, ElfW(Addr) address) {
  return (const void *)(address < object->dlpi_addr ? object->dlpi_addr + address : address);
}

static const ElfW(Dyn) *dynamic_of(const struct dl_phdr_info *object) {
  for (unsigned i = 0; i < object->dlpi_phnum; i++)
    if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
      return (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
  return NULL;
}

static struct names names_of(const struct dl_phdr_info *object) {
  struct names names = {NULL};
  ElfW(Addr) soname = 0;
  for (const ElfW(Dyn) *entry = dynamic_of(object); entry && entry->d_tag != DT_NULL; entry++) {
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
    bool same = (chain[i - first] | 1) == (hash | 1) && !strcmp(names->text + symbol->st_name, name);
    if (same && symbol->st_shndx != SHN_UNDEF) return symbol;
    last = chain[i - first] & 1;
  }
  return NULL;
}

/* Before glibc 2.34 libdl.so.2 has these functions. Musl's library is its loader, often without a name. */
static bool is_c_library(const char *soname, const char *path) {
  if (soname) return !strncmp(soname, "libc.", 5) || !strncmp(soname, "libdl.", 6);
  const char *file = path ? strrchr(path, '/') : NULL;
  return file && !strncmp(file, "/ld-musl-", 9);
}

struct search {
  const char *name;
  void *result;
};

static int search_object(struct dl_phdr_info *object, size_t size, void *argument) {
  struct search *search = argument;
  struct names names = names_of(object);
  if (!is_c_library(names.soname, object->dlpi_name) || !names.symbols || !names.hash) return 0;
  const ElfW(Sym) *symbol = defined(&names, search->name);
  if (symbol) search->result = (void *)(object->dlpi_addr + symbol->st_value);
  return symbol != NULL;
}

void *vgpu_c_library_function(const char *name) {
  struct search search = {name, NULL};
  dl_iterate_phdr(search_object, &search);
  return search.result;
}

static bool contains(const struct dl_phdr_info *object, const void *address) {
  for (unsigned i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_LOAD && (uintptr_t)address - begin < part->p_memsz) return true;
  }
  return false;
}

struct order {
  const void *address;
  bool passed; /* this library */
};

/* Objects come in the order in which they were loaded, which is the order of searches. */
static int compare_object(struct dl_phdr_info *object, size_t size, void *argument) {
  static const char here;
  struct order *order = argument;
  if (contains(object, order->address)) return 1;
  if (contains(object, &here)) order->passed = true;
  return 0;
}

bool vgpu_is_behind(const void *address) {
  struct order order = {address, false};
  dl_iterate_phdr(compare_object, &order);
  return order.passed;
}

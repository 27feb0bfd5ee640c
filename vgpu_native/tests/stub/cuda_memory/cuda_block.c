/* Addresses. A block of 2^c bytes or a little less lies at a multiple of 2^c in the range of its class c, so
 * that any address inside gives the start of the block. A freed address is the next to be returned, as by a
 * real driver. Device memory is not mapped: reading it from the host is a crash, as with a GPU. */
#include "cuda_stub.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAST 9
#define CLASSES 31
#define RANGE (1ull << 40)
#define FIRST 0x180000000000ull

static struct class {
  struct stub_block **block; /* by number; NULL: freed */
  uint32_t *given_back;
  uint32_t made, room, back;
} classes[CLASSES];

static uint64_t blocks_made;

static int class_of(uint64_t size)
{
  int class = 0;
  while (class < CLASSES && (1ull << (class + LEAST)) < size) class++;
  return class;
}

static bool grow(struct class *of)
{
  if (of->made < of->room) return true;
  uint32_t room = of->room ? 2 * of->room : 64;
  void *block = realloc(of->block, room * sizeof *of->block);
  if (block) of->block = block;
  void *back = realloc(of->given_back, room * sizeof *of->given_back);
  if (back) of->given_back = back;
  if (!block || !back) return false;
  of->room = room;
  return true;
}

/* A system call, because the thread sanitizer's mmap moves what is not in its own ranges. */
static bool back_with_memory(struct stub_block *block)
{
  void *wanted = (void *)(uintptr_t)block->at;
  void *at = (void *)syscall(SYS_mmap, wanted, block->size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at == wanted) return true;
  if (at != MAP_FAILED) munmap(at, block->size);
  return false;
}

struct stub_block *stub_block_make(uint64_t size, enum stub_kind kind, bool real)
{
  int class = class_of(size);
  if (!size || class == CLASSES) return NULL;
  struct class *of = &classes[class];
  struct stub_block *block = calloc(1, sizeof *block);
  if (!block || !grow(of) || (!of->back && of->made >> (40 - class - LEAST))) {
    free(block);
    return NULL;
  }
  uint32_t number = of->back ? of->given_back[--of->back] : of->made++;
  *block = (struct stub_block){.size = size, .kind = kind, .device = -1, .share = -1};
  block->at = FIRST + (uint64_t)class * RANGE + ((uint64_t)number << (class + LEAST));
  block->id = ++blocks_made;
  of->block[number] = block;
  if (real && !back_with_memory(block)) {
    block->kind = BLOCK_RANGE;
    stub_block_free(block);
    return NULL;
  }
  return block;
}

static struct stub_block **place(CUdeviceptr at, uint32_t *number, struct class **of)
{
  if (at < FIRST || at >= FIRST + CLASSES * RANGE) return NULL;
  uint64_t class = (at - FIRST) / RANGE;
  *number = (uint32_t)(((at - FIRST) % RANGE) >> (class + LEAST));
  *of = &classes[class];
  return *number < (*of)->made ? &(*of)->block[*number] : NULL;
}

struct stub_block *stub_block_find(CUdeviceptr at)
{
  uint32_t number;
  struct class *of;
  struct stub_block **found = place(at, &number, &of);
  return found && *found && at - (*found)->at < (*found)->size ? *found : NULL;
}

void stub_block_free(struct stub_block *block)
{
  uint32_t number;
  struct class *of;
  *place(block->at, &number, &of) = NULL;
  of->given_back[of->back++] = number;
  if (block->kind == BLOCK_HOST || block->kind == BLOCK_MANAGED)
    munmap((void *)(uintptr_t)block->at, block->size);
  free(block->content);
  free(block);
}

void stub_forget_blocks(void)
{
  for (int class = 0; class < CLASSES; class++)
    for (uint32_t i = 0; i < classes[class].made; i++) classes[class].block[i] = NULL;
}

void stub_blocks_each(void (*visit)(struct stub_block *, void *), void *with)
{
  for (int class = 0; class < CLASSES; class++)
    for (uint32_t i = 0; i < classes[class].made; i++)
      if (classes[class].block[i]) visit(classes[class].block[i], with);
}

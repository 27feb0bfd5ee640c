/* How much of a card an allocation takes. Cards and drivers differ, so the steps are settings. */
#include "cuda_stub.h"

#include <stdlib.h>

#define WINDOWS 4096

static uint64_t steps[STUB_STEPS];

static void read_steps(void)
{
  uint64_t small = stub_setting("VGPU_STUB_ALLOC_STEP", 512);
  steps[STEP_SMALL] = small;
  steps[STEP_LARGE] = stub_setting("VGPU_STUB_ALLOC_LARGE_STEP", small);
  steps[STEP_BLOCK] = stub_setting("VGPU_STUB_ALLOC_BLOCK", 0);
  steps[STEP_MANAGED] = stub_setting("VGPU_STUB_MANAGED_STEP", 65536);
  steps[STEP_ARRAY] = stub_setting("VGPU_STUB_ARRAY_STEP", 65536);
  steps[STEP_ARRAY_ROWS] = stub_setting("VGPU_STUB_ARRAY_ROWS", 1);
  steps[STEP_POOL] = stub_setting("VGPU_STUB_POOL_STEP", 32ull << 20);
  steps[STEP_GRAPH] = stub_setting("VGPU_STUB_GRAPH_STEP", 2ull << 20);
}

__attribute__((constructor)) static void read_once(void)
{
  read_steps();
}

uint64_t stub_step(enum stub_step which)
{
  return steps[which];
}

bool stub_in_window(uint64_t size)
{
  return steps[STEP_BLOCK] && size <= STUB_SMALL;
}

uint64_t stub_linear_bytes(uint64_t size)
{
  return round_up(size, steps[size > STUB_SMALL ? STEP_LARGE : STEP_SMALL]);
}

/* Small allocations whose addresses lie in one window share the memory of the card behind it. */
struct window {
  CUdeviceptr at; /* and the device in the low bits */
  uint64_t live;
  int share; /* -1: no other process can hold it */
  struct window *next;
};

static struct window *windows[WINDOWS];

static struct window **place(const struct stub_block *block)
{
  CUdeviceptr at = (block->at & ~(steps[STEP_BLOCK] - 1)) | (unsigned)block->device;
  struct window **link = &windows[(at / steps[STEP_BLOCK]) % WINDOWS];
  while (*link && (*link)->at != at) link = &(*link)->next;
  return link;
}

bool stub_window_enter(const struct stub_block *block)
{
  struct window **link = place(block), *window = *link;
  if (!window) {
    if (!stub_take(block->device, steps[STEP_BLOCK])) return false;
    window = *link = calloc(1, sizeof *window);
    window->at = (block->at & ~(steps[STEP_BLOCK] - 1)) | (unsigned)block->device;
    window->share = -1;
  }
  window->live++;
  return true;
}

void stub_window_leave(const struct stub_block *block)
{
  struct window **link = place(block), *window = *link;
  if (--window->live) return;
  if (window->share >= 0) stub_drop(window->share);
  else stub_give(block->device, steps[STEP_BLOCK]);
  *link = window->next;
  free(window);
}

int stub_window_share(const struct stub_block *block)
{
  struct window *window = *place(block);
  if (window->share < 0) window->share = stub_share(block->device, steps[STEP_BLOCK]);
  return window->share;
}

void stub_forget_windows(void)
{
  for (int i = 0; i < WINDOWS; i++) windows[i] = NULL;
}

/* Blocks of a card that small allocations share. A block is charged once, while an allocation in it lives. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum vgpu_block_state {
  VGPU_BLOCK_CHARGED,  /* an allocation in it lives already */
  VGPU_BLOCK_NEW,      /* this allocation is the first, and its charge becomes the block's */
  VGPU_BLOCK_UNSTORED, /* there is no memory to store it */
};

/* Count an allocation of `bytes` in the block of `size` around its address. */
enum vgpu_block_state vgpu_block_enter(int entry, uint64_t address, uint64_t size, uint64_t bytes);

/* Count it no longer. The last allocation of a block releases the charge of the block. */
void vgpu_block_leave(int entry, uint64_t address, uint64_t bytes);

/* Export the block around an address to other processes: its charge becomes that of a share. */
void vgpu_block_share(int entry, uint64_t address, uint64_t key);

/* Whether the charged blocks of a device may have room for so many bytes. */
bool vgpu_blocks_may_fit(int entry, uint64_t bytes);

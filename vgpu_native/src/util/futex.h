/* Waits on a word of this process's own memory. */
#pragma once

#include <stdint.h>

/* Sleep while the word has the value. */
void vgpu_futex_wait_while(uint32_t *word, uint32_t value);

/* The same, for at most so many nanoseconds. */
void vgpu_futex_wait_at_most(uint32_t *word, uint32_t value, uint64_t ns);

/* Wake all threads that wait for the word. */
void vgpu_futex_wake(uint32_t *word);

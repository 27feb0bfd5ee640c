/* What tests ask of the stub driver, beyond what a driver answers. Link with the stub, or dlsym.
 *
 * The stub is a test tool: it counts memory and lets time pass, and computes nothing. Environment:
 *
 *   VGPU_STUB_STATE      file of the machine's state, for several processes; without it: private
 *   VGPU_STUB_DEVICES    cards (1); the first process of a state decides
 *   VGPU_STUB_MEMORY     bytes of each card (80g); the first process of a state decides
 *   VGPU_STUB_VERSION    version of the driver (13000); newer functions cannot be had from
 *                        cuGetProcAddress, and refuse calls, but the linker does find them
 *   VGPU_STUB_FAIL       FUNCTION:K[,…]: the K-th call fails with CUDA_ERROR_UNKNOWN
 *   VGPU_STUB_DELAY_NS   time that each call takes
 *   VGPU_STUB_KERNEL_NS  device time of one kernel (0)
 *   VGPU_STUB_GRID_NS    instead: device time of one kernel for each unit of gridDim.x
 *   VGPU_STUB_STALL_NS   by so much every 17th launch is late, as on a machine that has more to do
 *   VGPU_STUB_CONTEXT_BYTES, VGPU_STUB_MODULE_BYTES   memory that each of them takes (0)
 *   VGPU_STUB_CONTEXT_ANEW   1: the address of a context that has ended is given to the next one
 *   VGPU_STUB_FORK       1: a child of fork may use the driver anew; else it is refused as by CUDA */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of a card that are in use in truth, by all processes and by one. */
uint64_t vgpu_stub_used(int device);
uint64_t vgpu_stub_used_by(pid_t pid, int device);

/* Time that a card has been running kernels. */
uint64_t vgpu_stub_busy_ns(int device);

/* How many calls of an exported function there were in this process, by its full name. */
uint64_t vgpu_stub_calls(const char *function);

/* Where an exported function is, whatever was preloaded. */
uint64_t vgpu_stub_address(const char *function);

/* Device time of the kernels that are launched from now on, in this process. */
void vgpu_stub_kernel_ns(uint64_t ns);

/* Let the k-th call from now of a function fail so; 0 for none. */
void vgpu_stub_fail(const char *function, unsigned k, int result);

/* Let a card have a critical error, for those who wait for NVML's events (both libraries export it);
 * let NVML find it gone, or there again (the stub NVML exports it). */
void vgpu_stub_xid(int device, unsigned xid);
void vgpu_stub_lose(int device, int lost);

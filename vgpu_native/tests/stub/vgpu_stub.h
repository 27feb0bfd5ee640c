/* The interface of the stub driver to tests, beyond a driver's own. Link with the stub, or use dlsym.
 *
 * The stub is a test tool: it counts memory and lets time pass, and computes nothing. Environment:
 *
 *   VGPU_STUB_STATE      file of the machine's state, for several processes; without it: private
 *   VGPU_STUB_DEVICES    cards (1); the first process of a state decides
 *   VGPU_STUB_MEMORY     bytes of each card (80g); the first process of a state decides
 *   VGPU_STUB_NODES      folder with the device nodes nvidia0, nvidia1, … of a container's cards; without it: all
 *   VGPU_STUB_VERSION    version of the driver (13000); cuGetProcAddress does not return newer
 *                        functions, and they refuse calls, but the linker finds them
 *   VGPU_STUB_FAIL       FUNCTION:K[,…]: the K-th call fails with CUDA_ERROR_UNKNOWN
 *   VGPU_STUB_DELAY_NS   time that each call takes
 *   VGPU_STUB_KERNEL_NS  device time of one kernel (0)
 *   VGPU_STUB_GRID_NS    instead: device time of one kernel for each unit of gridDim.x
 *   VGPU_STUB_LOAD_NS    time of the host that the first launch of a function takes, or cuFuncLoad (0)
 *   VGPU_STUB_EVENT_NS   time that an event takes in its stream (0)
 *   VGPU_STUB_TICK_NS    resolution of the times of events (1)
 *   VGPU_STUB_STALL_NS   delay of every 17th launch, as on a busy machine
 *   VGPU_STUB_ALLOC_STEP, VGPU_STUB_ALLOC_LARGE_STEP   step of cuMemAlloc up to 1 MiB (512), above (the same)
 *   VGPU_STUB_ALLOC_BLOCK   bytes that small allocations with addresses in one such window share (0: none)
 *   VGPU_STUB_MANAGED_STEP, VGPU_STUB_ARRAY_STEP   of managed memory above 1 MiB, and of arrays (64k)
 *   VGPU_STUB_ARRAY_ROWS   heights of arrays take whole blocks of so many rows, as on cards (1)
 *   VGPU_STUB_POOL_STEP, VGPU_STUB_GRAPH_STEP   of the growth of pools (32m) and of graph memory (2m)
 *   VGPU_STUB_PLAIN_HANDLES   1: exported memory cannot be identified: files are all alike to stat,
 *                        and each cuIpcGetMemHandle returns another handle
 *   VGPU_STUB_CONTEXT_BYTES, VGPU_STUB_MODULE_BYTES   bytes that each of them takes (0)
 *   VGPU_STUB_GREEN_KEEPS   1: memory of a green context ends with the primary one
 *   VGPU_STUB_ASK_IN_CONTEXT   1: cuPointerGetAttribute needs a current context
 *   VGPU_STUB_HIDE_PROCESSES   1: NVML lists no processes; 2: it lists them without their memory
 *   VGPU_STUB_PID_OFFSET   added to the pids that NVML lists, which are those of the host (0)
 *   VGPU_STUB_FREE_IN_ORDER   1: cuMemFreeAsync frees memory of cuMemAlloc when the stream reaches it
 *   VGPU_STUB_CONTEXT_ANEW   1: the next context gets the address of an ended one
 *   VGPU_STUB_TEARDOWN_NS   time that the driver's exit handler takes; a call from then on aborts (0: none)
 *   VGPU_STUB_FORK       1: a child of fork may use the driver again; else it is refused as by CUDA */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of a card that are really allocated, by all processes and by one. */
uint64_t vgpu_stub_used(int device);
uint64_t vgpu_stub_used_by(pid_t pid, int device);

/* Time for which a card has been running kernels. */
uint64_t vgpu_stub_busy_ns(int device);

/* The number of calls of an exported function in this process, by its full name. */
uint64_t vgpu_stub_calls(const char *function);

/* The address of an exported function, independent of preloaded libraries. */
uint64_t vgpu_stub_address(const char *function);

/* The number of uses of events whose context had ended. */
uint64_t vgpu_stub_dead_uses(void);

/* Set the device time of later kernels of this process. */
void vgpu_stub_kernel_ns(uint64_t ns);

/* Let the k-th call of a function from now fail with a result; 0 for none. */
void vgpu_stub_fail(const char *function, unsigned k, int result);

/* Report a critical error of a card to processes that wait for NVML's events (exported by both libraries);
 * let NVML lose a card, or find it again (exported by the stub NVML). */
void vgpu_stub_xid(int device, unsigned xid);
void vgpu_stub_lose(int device, int lost);

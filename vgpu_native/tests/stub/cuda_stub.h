/* The shared declarations of the stub driver. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state.h"
#include "vgpu_stub.h"

#define EXPORT __attribute__((visibility("default")))
#define GRANULE (2ull << 20)

static inline uint64_t round_up(uint64_t value, uint64_t to)
{
  return (value + to - 1) / to * to;
}

/* --- calls: every exported function goes through these, see tools/generate_stub.py --- */

struct stub_function {
  const char *name, *base;
  int introduced;
  int stream; /* 1: NULL is the legacy stream, 2: the thread's own */
  void *address;
};
extern const struct stub_function stub_functions[];
extern const unsigned stub_function_count;

/* Whether a call needs a check before its work; else it is only counted. */
extern _Atomic bool stub_plain[];
extern _Atomic uint64_t stub_counts[];
#define STUB_SPECIAL(n)                                                  \
  (atomic_fetch_add_explicit(&stub_counts[n], 1, memory_order_relaxed), \
   !atomic_load_explicit(&stub_plain[n], memory_order_acquire))

/* False: the call returns `result` at once. */
bool stub_begin(unsigned n, CUresult *result);

/* Set this thread's kind of default stream, and restore the earlier one. */
int stub_enter(int stream);
void stub_leave(int before);

/* Whether this thread is in a function of the per-thread default stream. */
bool stub_per_thread(void);

/* After cuInit calls need no check, unless a test sets one. */
void stub_initialised(void);
int stub_version(void);

/* --- contexts --- */

struct CUctx_st {
  int device;
  bool primary, alive, green;
  unsigned retained, flags;
  uint64_t bytes;
  uint64_t id; /* differs from that of an ended context at the same address */
  uint64_t limits[3]; /* stack, printf and heap; 0: as at first */
  _Atomic uint64_t last_end; /* the end of all its work */
  struct CUstream_st *legacy;
  struct CUctx_st *next;
};

CUcontext stub_context(void);        /* the current one, or NULL */
CUcontext stub_memory_context(void); /* the one with which memory of the current one ends */
bool stub_alive(CUcontext context);  /* whether it is valid */
void stub_modules_end(CUcontext context); /* and of its modules */
void stub_arrays_end(CUcontext context); /* free its arrays; objects are locked */
/* Create a context that is current in no thread, and end it. */
CUresult stub_context_make(CUcontext *context, unsigned flags, CUdevice device);
CUresult stub_context_end(CUcontext context);
int stub_device(void);               /* of the current context, -1 without one */
bool stub_is_device(CUdevice device);
void stub_lock_objects(void);
void stub_unlock_objects(void);

/* --- forks: a child has none of its parent's objects --- */

void stub_watch_forks(void);
void stub_lock_calls(void);
void stub_unlock_calls(void);
void stub_lock_queue(void);
void stub_unlock_queue(void);
void stub_forget_contexts(void);
void stub_forget_blocks(void);
void stub_forget_pools(void);
void stub_forget_graph_memory(void);
void stub_forget_physical(void);
void stub_forget_arrays(void);
void stub_forget_windows(void);
void stub_forget_modules(void);
void stub_forget_calls(void);

/* --- memory with an address --- */

enum stub_kind { BLOCK_FREE, BLOCK_DEVICE, BLOCK_MANAGED, BLOCK_HOST, BLOCK_POOL, BLOCK_IPC,
                 BLOCK_RANGE, BLOCK_EXTERNAL, BLOCK_GRAPH };

struct stub_block {
  CUdeviceptr at;
  uint64_t size;  /* as requested */
  uint64_t bytes; /* of the card */
  enum stub_kind kind;
  int device;
  int share; /* -1: no other process can hold it */
  CUcontext context;
  CUmemoryPool pool;
  unsigned opened; /* how often another process's memory was opened */
  uint64_t freed_at; /* the time at which a stream frees it; 0: not */
  bool small;      /* it lies in a window */
  bool live;       /* a graph has allocated it, and it is not freed */
  unsigned char *content; /* its first bytes, once they are written */
  uint64_t id;
};

/* Create a block with an address of its own, backed by host memory if it is `real`. */
struct stub_block *stub_block_make(uint64_t size, enum stub_kind kind, bool real);
/* The block that an address lies in; NULL for none. */
struct stub_block *stub_block_find(CUdeviceptr at);
/* Take a block that begins at an address out of the table; NULL for none. */
void stub_block_free(struct stub_block *block);
/* Call for all blocks; objects are locked. */
void stub_blocks_each(void (*visit)(struct stub_block *block, void *with), void *with);
/* Free what streams have freed by now; objects are locked. */
void stub_free_in_order(void);
/* Free the memory of a block, and the block. */
CUresult stub_release_block(struct stub_block *block);

/* --- steps: how much of a card an allocation takes --- */

enum stub_step { STEP_SMALL, STEP_LARGE, STEP_BLOCK, STEP_MANAGED, STEP_ARRAY, STEP_ARRAY_ROWS, STEP_POOL, STEP_GRAPH, STUB_STEPS };
#define STUB_SMALL (1ull << 20) /* the largest small allocation */

uint64_t stub_step(enum stub_step which);
uint64_t stub_linear_bytes(uint64_t size);
/* Small allocations in windows; objects are locked. */
bool stub_in_window(uint64_t size);
bool stub_window_enter(const struct stub_block *block); /* false: the card is full */
void stub_window_leave(const struct stub_block *block);
int stub_window_share(const struct stub_block *block);

/* --- pools, time and graphs --- */

CUmemoryPool stub_default_pool(int device);
void stub_pool_give(CUmemoryPool pool, uint64_t bytes);
void stub_pools_settle(int device); /* at a synchronization: give back what is over the threshold */

struct CUstream_st {
  uint32_t magic;
  unsigned flags;
  int priority;
  CUcontext context;
  _Atomic uint64_t last_end; /* the end of its work */
  struct stub_capture *capture; /* its last capture */
  uint64_t id;
};

struct CUevent_st {
  uint32_t magic;
  unsigned flags;
  struct stub_capture *capture; /* the capture that recorded it; it marks no time */
  CUcontext context;
  uint64_t context_id;
  _Atomic uint64_t time; /* the end of the work before it; 0: not recorded */
};

CUstream stub_stream(CUstream stream); /* the object behind a handle, NULL: invalid */
uint64_t stub_stream_end(CUstream stream);
void stub_extend(_Atomic uint64_t *last, uint64_t end);
CUresult stub_launch(CUstream stream, unsigned kernels, uint64_t ns);
uint64_t stub_kernel_time(unsigned grid_x);
void stub_wait_until(uint64_t when);
void stub_function_load(CUfunction function); /* before its first launch */

/* --- capture: the work of a stream becomes nodes of a graph --- */

struct stub_capture {
  CUgraph graph;
  bool open, broken;
  CUstreamCaptureMode mode;
  uint64_t id;
};

bool stub_capturing(CUstream stream);
CUgraph stub_capture_graph(CUstream stream);

/* Whether a capture in progress forbids calls that might wait, which also invalidate it. */
bool stub_capture_forbids(void);
#define STUB_UNSAFE \
  if (stub_capture_forbids()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED

/* --- graphs --- */

CUgraph stub_graph_make(void);
void stub_graph_kernel(CUgraph graph, uint64_t ns);
CUresult stub_graph_alloc(CUgraph graph, int device, uint64_t bytes, CUdeviceptr *at, CUgraphNode *node);
CUresult stub_graph_free(CUgraph graph, CUdeviceptr at, CUgraphNode *node);
CUresult stub_graph_release(struct stub_block *block);

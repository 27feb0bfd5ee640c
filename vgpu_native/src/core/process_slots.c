/* Owning a slot. A thread of this process writes its number into the slot's owner word and registers
 * the word with the kernel (set_robust_list). When the thread ends, by any means, the kernel marks the
 * word. glibc's robust mutexes work the same way, but have pointers in memory that every process of the
 * container can write. Unlike a pid, the word stays correct when a number is used again, across pid
 * namespaces, for a stopped process, and for a child that outlives its parent. */
#include "core/process_slots.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/assert.h"
#include "util/futex.h"

enum { STACK = 64 * 1024 };

/* PTHREAD_STACK_MIN calls it in newer glibc. It is weak because musl has none. */
#pragma weak __sysconf

/* The list that is registered with the kernel, of one futex: the owner word of the slot. The pending
 * operation covers the moment between the word and the list. */
static struct robust_list_head head;
static struct robust_list node;

struct attempt {
  vgpu_region *region;
  vgpu_slot *slot;
  int error;
  uint32_t done;
};

static void point_to(const uint32_t *owner) {
  __atomic_store_n(&head.futex_offset, (long)((uintptr_t)owner - (uintptr_t)&node),
                   __ATOMIC_RELEASE);
}

static bool try_own(vgpu_slot *slot, uint32_t thread) {
  uint32_t before = __atomic_load_n(&slot->owner, __ATOMIC_SEQ_CST);
  /* A living slot is not announced, because its owner may have the same number in another pid namespace. */
  if (before && !(before & VGPU_OWNER_DIED)) return false;
  point_to(&slot->owner);
  __atomic_store_n(&head.list_op_pending, &node, __ATOMIC_SEQ_CST);
  bool taken = __atomic_compare_exchange_n(&slot->owner, &before, thread, false, __ATOMIC_SEQ_CST,
                                           __ATOMIC_SEQ_CST);
  if (taken) __atomic_store_n(&head.list.next, &node, __ATOMIC_SEQ_CST);
  __atomic_store_n(&head.list_op_pending, NULL, __ATOMIC_SEQ_CST);
  return taken;
}

/* Clear the counts of the slot's earlier owner. Until here they counted for this process, which is
 * never less than its true usage. */
static void clear_slot(vgpu_region *region, unsigned number) {
  vgpu_slot *slot = &region->slot[number];
  for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
    __atomic_store_n(&region->used[i].slot[number], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&slot->busy[i], 0, __ATOMIC_RELAXED);
  }
  for (uint64_t i = 0, high = __atomic_load_n(&region->shares_high, __ATOMIC_SEQ_CST); i < high && i < VGPU_SHARES_MAX; i++)
    __atomic_fetch_and(&region->share[i].holders[number / 64], ~(1ULL << number % 64), __ATOMIC_SEQ_CST);
  struct timespec clock;
  clock_gettime(CLOCK_REALTIME, &clock);
  __atomic_store_n(&slot->pid, (uint64_t)getpid(), __ATOMIC_RELAXED);
  __atomic_store_n(&slot->attached, (uint64_t)clock.tv_sec, __ATOMIC_RELAXED);
}

/* Raise `high` before the slot is used, because sums read only the slots below it. */
static void raise_high(vgpu_region *region, uint64_t high) {
  uint64_t before = __atomic_load_n(&region->high, __ATOMIC_SEQ_CST);
  while (before < high && !__atomic_compare_exchange_n(&region->high, &before, high, false,
                                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
}

/* Whether the kernel marks the slot as dead when this thread ends. */
static bool is_announced(const vgpu_slot *slot) {
  return head.list.next == &node && !head.list_op_pending &&
         (uintptr_t)&node + (uintptr_t)head.futex_offset == (uintptr_t)&slot->owner;
}

/* Whether nothing is counted for a slot. */
static bool is_clear(const vgpu_region *region, unsigned number) {
  uint64_t any = 0;
  for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
    any |= region->used[i].slot[number] | region->slot[number].busy[i];
  for (unsigned i = 0; i < VGPU_SHARES_MAX; i++) any |= region->share[i].holders[number / 64] >> number % 64 & 1;
  return !any;
}

static vgpu_slot *own_any(vgpu_region *region, uint32_t thread) {
  for (unsigned i = 0; i < VGPU_SLOTS_MAX; i++) {
    vgpu_slot *slot = &region->slot[i];
    if (!try_own(slot, thread)) continue;
    clear_slot(region, i);
    raise_high(region, i + 1);
    VGPU_ASSERT(slot->owner == thread && vgpu_slot_lives(slot));
    VGPU_ASSERT(is_announced(slot));
    VGPU_ASSERT(vgpu_slots_high(region) > i);
    VGPU_ASSERT_EXPENSIVE(is_clear(region, i));
    return slot;
  }
  return NULL;
}

static void *own_until_exit(void *argument) {
  struct attempt *attempt = argument;
  prctl(PR_SET_NAME, "gpuledger");
  head = (struct robust_list_head){.list = {&head.list}};
  node.next = &head.list;
  /* A seccomp filter may forbid gettid. An owner with an invalid number would count as dead. */
  long thread = syscall(SYS_gettid);
  if (thread <= 0 || syscall(SYS_set_robust_list, &head, sizeof head)) attempt->error = errno;
  else if (!(attempt->slot = own_any(attempt->region, (uint32_t)thread))) attempt->error = ENOSPC;
  bool owner = !attempt->error;
  __atomic_store_n(&attempt->done, 1, __ATOMIC_RELEASE);
  vgpu_futex_wake(&attempt->done);
  while (owner) pause();
  return NULL;
}

/* The thread inherits the mask of signals: all are blocked while a process attaches. */
static int start_owner(struct attempt *attempt) {
  pthread_t thread;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&small, STACK < PTHREAD_STACK_MIN ? PTHREAD_STACK_MIN : STACK);
  int error = pthread_create(&thread, &small, own_until_exit, attempt);
  pthread_attr_destroy(&small);
  /* The stack also holds the program's thread-local memory, which may need more. */
  if (error == EINVAL && !(error = pthread_create(&thread, NULL, own_until_exit, attempt)))
    pthread_detach(thread);
  return error;
}

vgpu_slot *vgpu_slot_own(vgpu_region *region) {
  struct attempt attempt = {.region = region};
  int error = start_owner(&attempt);
  if (!error) vgpu_futex_wait_while(&attempt.done, 0);
  errno = error ? error : attempt.error;
  return attempt.slot;
}

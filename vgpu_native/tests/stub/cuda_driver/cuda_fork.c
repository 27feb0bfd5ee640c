/* Forks. A fork waits for all locks, because the child does not have the threads that hold them, and their
 * data may be half changed. The child has none of its parent's objects, because their memory is the
 * parent's. */
#include "cuda_stub.h"

#include <pthread.h>

static void before(void)
{
  stub_lock_objects();
  stub_lock_queue();
  stub_lock_calls();
}

static void in_parent(void)
{
  stub_unlock_calls();
  stub_unlock_queue();
  stub_unlock_objects();
}

static void in_child(void)
{
  stub_forget_contexts();
  stub_forget_blocks();
  stub_forget_pools();
  stub_forget_graph_memory();
  stub_forget_physical();
  stub_forget_arrays();
  stub_forget_windows();
  stub_forget_modules();
  stub_forget_calls();
  in_parent();
}

/* The lock of the machine's state is taken after these, so its handlers must be registered first. */
void stub_watch_forks(void)
{
  pthread_atfork(before, in_parent, in_child);
}

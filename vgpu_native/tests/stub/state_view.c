/* Queries of the machine: usage by process, utilisation, and critical errors. */
#include "state.h"

/* A share counts for its creator, and then for the first other holder. */
static uint64_t shared_by(int i, int device)
{
  struct stub_state *state = stub_state();
  uint64_t sum = 0;
  for (int k = 0; k < STUB_SHARES; k++) {
    struct stub_share *share = &state->share[k];
    if (!share->bytes || share->device != device) continue;
    int bearer = share->creator;
    for (int j = 0; !stub_held_by(share, bearer) && j < STUB_PROCESSES; j++)
      if (stub_held_by(share, j)) bearer = j;
    if (bearer == i) sum += share->bytes;
  }
  return sum;
}

uint64_t stub_used(pid_t pid, int device)
{
  struct stub_state *state = stub_state();
  if (!state || device < 0 || device >= (int)state->devices) return 0;
  stub_lock();
  stub_reap();
  uint64_t used = pid ? 0 : state->device[device].used;
  for (int i = 0; pid && i < state->highest; i++)
    if (state->process[i].pid == pid) used += state->process[i].used[device] + shared_by(i, device);
  stub_unlock();
  return used;
}

/* Queued kernels do not count as busy yet. The kernels of one process are not distinguished. */
uint64_t stub_busy_ns(pid_t pid, int device)
{
  struct stub_state *state = stub_state();
  if (!state || device < 0 || device >= (int)state->devices) return 0;
  stub_lock();
  struct stub_device *on = &state->device[device];
  uint64_t now = stub_now(), busy = 0;
  uint64_t ahead = on->free_at > now ? on->free_at - now : 0;
  if (!pid) busy = on->busy_ns > ahead ? on->busy_ns - ahead : 0;
  for (int i = 0; pid && i < state->highest; i++)
    if (state->process[i].pid == pid) busy += state->process[i].busy_ns[device];
  stub_unlock();
  return busy;
}

unsigned stub_users(int device, struct stub_user *users, unsigned room)
{
  struct stub_state *state = stub_state();
  unsigned found = 0;
  stub_lock();
  stub_reap();
  for (int i = 0; i < state->highest; i++) {
    struct stub_process *one = &state->process[i];
    uint64_t used = one->pid ? one->used[device] + shared_by(i, device) : 0;
    if (!used) continue;
    if (found < room) users[found] = (struct stub_user){stub_pid(i), used, one->busy_ns[device]};
    found++;
  }
  stub_unlock();
  return found;
}

void stub_xid(int device, uint32_t xid)
{
  struct stub_state *state = stub_state();
  if (!state) return;
  stub_lock();
  state->event[state->events % STUB_EVENTS] = (struct stub_event){device, xid};
  state->events++;
  stub_unlock();
}

bool stub_next_event(uint64_t *seen, struct stub_event *event)
{
  struct stub_state *state = stub_state();
  stub_lock();
  if (*seen + STUB_EVENTS < state->events) *seen = state->events - STUB_EVENTS;
  bool any = *seen < state->events;
  if (any) *event = state->event[(*seen)++ % STUB_EVENTS];
  stub_unlock();
  return any;
}

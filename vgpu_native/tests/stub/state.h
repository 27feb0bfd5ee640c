/* The shared state of a stub machine: the memory, time and processes of its cards.
 *
 * VGPU_STUB_STATE names the file; without it a process has cards of its own. The stub driver
 * and the stub NVML are both built with it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STUB_DEVICES 16
#define STUB_PROCESSES 256
#define STUB_SHARES 1024
#define STUB_EVENTS 64

struct stub_device {
  uint64_t size, used; /* bytes */
  uint64_t free_at;    /* the end of the last queued kernel, in monotonic ns */
  uint64_t busy_ns;    /* time of all kernels, including queued ones */
  int64_t last;        /* number of the process whose kernel was queued last */
  uint64_t lost;       /* it fell off the bus, as NVML reports */
};

/* A process with an open driver. It is alive while it holds the lock of its byte. */
struct stub_process {
  pid_t pid;                          /* 0: unused */
  uint64_t used[STUB_DEVICES];        /* bytes that no other process can hold */
  uint64_t busy_ns[STUB_DEVICES];
};

/* Memory that several processes may hold; it is freed when the last of them releases it or dies. */
struct stub_share {
  uint64_t bytes; /* 0: free */
  int32_t device;
  int32_t creator;     /* number of the process that it counts for, while that holds it */
  uint32_t generation; /* to detect a handle of an earlier one */
  uint64_t holders[STUB_PROCESSES / 64];
};

static inline bool stub_held_by(const struct stub_share *share, int process)
{
  return share->holders[process / 64] >> (process % 64) & 1;
}

/* A critical error of a card, for processes that wait for NVML's events. */
struct stub_event {
  int32_t device;
  uint32_t xid;
};

struct stub_state {
  uint32_t magic, devices;
  pthread_mutex_t gate;
  struct stub_device device[STUB_DEVICES];
  int32_t highest; /* the highest number of simultaneous processes */
  struct stub_process process[STUB_PROCESSES];
  struct stub_share share[STUB_SHARES];
  uint64_t events; /* the number of errors so far */
  struct stub_event event[STUB_EVENTS];
};

/* Open the machine. NULL, with errno: its file cannot be opened. Later calls cost a load. */
struct stub_state *stub_state(void);

/* Take and leave the lock of the state; a dead holder's changes are repaired. */
void stub_lock(void);
void stub_unlock(void);

/* Free the memory of dead processes, under the lock. */
void stub_reap(void);

/* The cards whose nodes this process can open (VGPU_STUB_NODES; without it all), counted as indexes. A number is a
 * card's place in the machine. -1: there is no such card. */
bool stub_visible(int device);
int stub_visible_devices(void);
int stub_number_of(int index);
int stub_index_of(int device);

/* The pid of a process in the pid namespace of this one, as a driver names it. */
pid_t stub_pid(int process);

/* Join the machine as a process. False: there are too many. */
bool stub_join(void);

/* Whether this process was forked from one that had joined. */
bool stub_forked(void);

/* Take bytes of a device's memory, false if it is full; and give them back. */
bool stub_take(int device, uint64_t bytes);
void stub_give(int device, uint64_t bytes);

/* Turn memory of this process into a share that others may hold. Returns its number, -1 if there are too
 * many. */
int stub_share(int device, uint64_t bytes);
bool stub_hold(int share, uint32_t generation);
void stub_drop(int share);

/* Run on a device for a duration, not before a time and after all earlier work. Returns the end. */
uint64_t stub_run(int device, uint64_t not_before, uint64_t ns);

/* The time at which a device starts work of this process that is queued now, in monotonic ns; 0: at once. It
 * serves processes in turn, and the queued work of others comes first. */
uint64_t stub_turn(int device);

/* Used bytes and time of a device, by all processes (pid 0) or by one. */
uint64_t stub_used(pid_t pid, int device);
uint64_t stub_busy_ns(pid_t pid, int device);

/* Write the processes that use a device's memory, up to the room. Returns their number. */
struct stub_user {
  pid_t pid;
  uint64_t used, busy_ns;
};
unsigned stub_users(int device, struct stub_user *users, unsigned room);

/* Critical errors: write one, and read the next after `seen` of them; false if there is none. */
void stub_xid(int device, uint32_t xid);
bool stub_next_event(uint64_t *seen, struct stub_event *event);

uint64_t stub_now(void);

/* A size or a number from the environment: decimal, with k, m, g or t for powers of 1024. */
uint64_t stub_setting(const char *name, uint64_t fallback);

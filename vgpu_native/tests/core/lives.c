/* The lifetime of charges: lives SCENARIO. Prints each failure, and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "common.h"

static int entry;
static uint32_t *stage; /* the progress of a child */

static uint64_t used_mib(void) { return vgpu_used(entry) / MIB; }

static void reach(uint32_t value) { __atomic_store_n(stage, value, __ATOMIC_SEQ_CST); }

static void wait_until(uint32_t value) {
  for (int i = 0; i < 50000 && __atomic_load_n(stage, __ATOMIC_SEQ_CST) < value; i++) nap(100000);
  if (*stage < value) printf("stage %u was not reached\n", value);
}

/* The kernel marks a slot when its thread ends, which may be shortly after a wait for the process. */
static void expect(const char *when, uint64_t mib) {
  for (int i = 0; i < 20000 && used_mib() != mib; i++) nap(100000);
  if (used_mib() != mib)
    printf("%s: %llu MiB count, and not %llu\n", when, (unsigned long long)used_mib(),
           (unsigned long long)mib);
}

static void stay(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) pause();
}

static void hold(uint64_t mib, uint32_t next) {
  if (!vgpu_reserve(device(0), mib * MIB))
    printf("%llu MiB were refused\n", (unsigned long long)mib);
  fflush(stdout);
  reach(next);
}

static pid_t holder(uint64_t mib, uint32_t next) {
  pid_t pid = fork();
  if (!pid) hold(mib, next), stay();
  wait_until(next);
  return pid;
}

static void end(pid_t pid, int signal) {
  kill(pid, signal);
  waitpid(pid, NULL, 0);
}

static void stopped(void) {
  pid_t pid = holder(600, 1);
  kill(pid, SIGSTOP);
  waitpid(pid, NULL, WUNTRACED);
  expect("stopped", 600);
  if (vgpu_reserve(entry, 600 * MIB)) puts("more than the limit was given");
  end(pid, SIGKILL);
  expect("killed", 0);
}

static void ended(void) {
  end(holder(600, 1), SIGSEGV);
  expect("crashed", 0);
  end(holder(600, 2), SIGTERM);
  expect("terminated", 0);
  pid_t pid = fork();
  if (!pid) hold(600, 3), _exit(0);
  waitpid(pid, NULL, 0);
  expect("exited", 0);
}

static void executed(void) {
  pid_t pid = fork();
  if (!pid) hold(600, 1), execl("/bin/sleep", "sleep", "60", NULL);
  wait_until(1);
  expect("executed", 0);
  end(pid, SIGKILL);
}

static pid_t raw_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

/* The child's memory stays charged when its parent ends, and ends with the child. */
static void forked_by(pid_t (*how)(void)) {
  pid_t *child = shared(sizeof *child), parent = fork();
  if (!parent) {
    hold(600, 1);
    pid_t pid = how();
    if (!pid) hold(300, 2), pause();
    *child = pid;
    wait_until(2);
    reach(3);
    stay();
  }
  wait_until(3);
  expect("both live", 900);
  end(parent, SIGKILL);
  expect("the parent is dead", 300);
  kill(*child, SIGKILL);
  expect("both are dead", 0);
}

static void forked(void) { forked_by(fork); }
static void cloned(void) { forked_by(raw_fork); }

static void idle_child(void) {
  pid_t parent = fork();
  if (!parent) {
    hold(600, 1);
    pid_t pid = fork();
    if (!pid) reach(2), stay();
    wait_until(2);
    end(pid, SIGKILL);
    if (!(pid = vfork())) execl("/bin/true", "true", NULL), _exit(1);
    waitpid(pid, NULL, 0);
    for (int file = 3; file < 1024; file++) close(file);
    reach(3);
    stay();
  }
  wait_until(3);
  expect("children came and went, and files were closed", 600);
  end(parent, SIGKILL);
  expect("killed", 0);
}

static void *attach_and_end(void *unused) {
  hold(600, 1);
  return NULL;
}

static void thread_ends(void) {
  pid_t pid = fork();
  if (!pid) {
    pthread_t thread;
    pthread_create(&thread, NULL, attach_and_end, NULL);
    pthread_join(thread, NULL);
    reach(2);
    stay();
  }
  wait_until(2);
  expect("the thread that attached has ended", 600);
  end(pid, SIGKILL);
  expect("killed", 0);
}

/* Both are the first process of a pid namespace, so their threads have the same numbers. */
static pid_t in_namespace(uint64_t mib, uint32_t next) {
  pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | 0x20000000 /* CLONE_NEWPID */, 0, 0, 0, 0);
  if (!pid) hold(mib, next), stay();
  if (pid > 0) wait_until(next);
  return pid;
}

static void namespaces(void) {
  pid_t first = in_namespace(600, 1);
  if (first < 0) {
    puts("skip: no pid namespaces can be made here");
    return;
  }
  pid_t second = in_namespace(300, 2);
  expect("both live", 900);
  end(first, SIGKILL);
  expect("the first is dead", 300);
  end(second, SIGKILL);
  expect("both are dead", 0);
}

/* From now on a system call returns EPERM. */
static bool forbid(unsigned number) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* A process that may not read its thread id, or not register a robust list, is limited nevertheless. */
static void filtered(void) {
  static const unsigned forbidden[] = {SYS_gettid, SYS_set_robust_list, SYS_madvise, SYS_prctl};
  for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
    pid_t pid = fork();
    if (!pid) {
      if (!forbid(forbidden[i])) puts("skip: no system call can be forbidden here"), _exit(0);
      int own = device(0);
      _exit(vgpu_reserve(own, 600 * MIB) && !vgpu_reserve(own, 600 * MIB) ? 0 : 1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    if (status) printf("without system call %u it ended with %x\n", forbidden[i], status);
  }
  expect("all are gone", 0);
}

static void *attach(void *unused) { return vgpu_ready() ? unused : NULL; }

/* A fork at any moment of another thread's attaching: the child attaches soon, too. */
static void fork_while_attaching(void) {
  for (long delay = 0; delay < 400000; delay += 2000) {
    pid_t pid = fork();
    if (!pid) {
      pthread_t thread;
      pthread_create(&thread, NULL, attach, NULL);
      for (uint64_t until = nanoseconds() + (uint64_t)delay; nanoseconds() < until;) {
      }
      pid_t child = fork();
      alarm(10);
      if (!child) _exit(vgpu_reserve(device(0), MIB) ? 0 : 1);
      int status = 1;
      waitpid(child, &status, 0);
      pthread_join(thread, NULL);
      _exit(status ? 1 : 0);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    if (status)
      printf("a child of a fork %ld ns after attaching began ended with %d\n", delay, status);
  }
  expect("all are gone", 0);
}

/* All start at the same time without a region: each must see the usage of all. */
static void begin_together(void) {
  enum { COUNT = 6, ROUNDS = 100 };
  for (uint32_t round = 0; round < ROUNDS; round++) {
    unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"));
    reach(0);
    for (int i = 0; i < COUNT; i++) {
      if (fork()) continue;
      __atomic_fetch_add(stage, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(stage, __ATOMIC_SEQ_CST) < COUNT) sched_yield();
      if (!vgpu_reserve(entry = device(0), MIB)) puts("one mebibyte was refused");
      __atomic_fetch_add(stage, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(stage, __ATOMIC_SEQ_CST) < 2 * COUNT) sched_yield();
      if (used_mib() != COUNT)
        printf("%llu MiB are seen, and not %d\n", (unsigned long long)used_mib(), COUNT);
      __atomic_fetch_add(stage, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(stage, __ATOMIC_SEQ_CST) < 3 * COUNT) sched_yield();
      exit(0);
    }
    while (wait(NULL) > 0) {
    }
  }
}

int main(int count, char **words) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {{"stopped", stopped},
                   {"ended", ended},
                   {"executed", executed},
                   {"forked", forked},
                   {"cloned", cloned},
                   {"idle_child", idle_child},
                   {"thread_ends", thread_ends},
                   {"namespaces", namespaces},
                   {"filtered", filtered},
                   {"fork_while_attaching", fork_while_attaching},
                   {"begin_together", begin_together}};
  if (count != 2) return 2;
  setenv("CUDA_DEVICE_MEMORY_LIMIT", "1000m", 1);
  setlinebuf(stdout);
  stage = shared(sizeof *stage);
  bool late = !strcmp(words[1], "fork_while_attaching") || !strcmp(words[1], "begin_together");
  if (!late) entry = device(0);
  for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
    if (!strcmp(words[1], scenarios[i].name)) return scenarios[i].run(), 0;
  return 2;
}

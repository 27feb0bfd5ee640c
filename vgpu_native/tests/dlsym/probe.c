/* Look symbols up, one step per argument, and print the object in which each was found:
 *
 *   open:FILE  global:FILE  apart:FILE    dlopen, RTLD_GLOBAL, dlmopen into a new namespace
 *   has:NAME                              dlsym on the last opened library
 *   version:NAME@VERSION                  dlvsym on the last opened library
 *   next-version:NAME@VERSION             dlvsym on RTLD_NEXT
 *   address:NAME@VERSION                  cuGetProcAddress_v2 of the last opened library
 *   default:NAME  next:NAME  self:NAME    dlsym on RTLD_DEFAULT, RTLD_NEXT, the program itself
 *   ask:NAME                              call `void *NAME(void)` and print the object of its result
 *   error                                 dlerror, or "none"
 *   sleep:SECONDS                         log lines repeat after a second
 *   fork  vfork                           the next step in a child; run /bin/true in one
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef DLSYM
__asm__(".symver dlsym,dlsym@" DLSYM);
#endif

static void *opened;

static void say(void *address) {
  Dl_info info;
  if (!address)
    puts("nowhere");
  else if (!dladdr(address, &info))
    puts("unknown");
  else
    puts(strrchr(info.dli_fname, '/') ? strrchr(info.dli_fname, '/') + 1 : info.dli_fname);
  fflush(stdout);
}

static void open_file(void *handle) {
  opened = handle;
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
}

static void *with_version(void *handle, char *name) {
  char *version = strchr(name, '@');
  *version++ = 0;
  return dlvsym(handle, name, version);
}

static void *by_address(char *name) {
  typedef int looking(const char *, void **, int, unsigned long long, int *);
  char *version = strchr(name, '@');
  void *found = NULL;
  *version++ = 0;
  ((looking *)dlsym(opened, "cuGetProcAddress_v2"))(name, &found, atoi(version), 0, NULL);
  return found;
}

static void ask(const char *name) {
  void *(*function)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, name);
  say(function ? function() : NULL);
}

static void wait_for(pid_t child) {
  int status;
  waitpid(child, &status, 0);
  printf("status %d\n", status);
  fflush(stdout);
}

static void run_true(void) {
  pid_t child = vfork();
  if (!child) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(127);
  }
  wait_for(child);
}

static void step(const char *what, char *name) {
  const char *error;
  if (!strcmp(what, "open")) open_file(dlopen(name, RTLD_NOW));
  else if (!strcmp(what, "global")) open_file(dlopen(name, RTLD_NOW | RTLD_GLOBAL));
  else if (!strcmp(what, "apart")) open_file(dlmopen(LM_ID_NEWLM, name, RTLD_NOW));
  else if (!strcmp(what, "has")) say(dlsym(opened, name));
  else if (!strcmp(what, "version")) say(with_version(opened, name));
  else if (!strcmp(what, "address")) say(by_address(name));
  else if (!strcmp(what, "next-version")) say(with_version(RTLD_NEXT, name));
  else if (!strcmp(what, "default")) say(dlsym(RTLD_DEFAULT, name));
  else if (!strcmp(what, "next")) say(dlsym(RTLD_NEXT, name));
  else if (!strcmp(what, "self")) say(dlsym(dlopen(NULL, RTLD_NOW), name));
  else if (!strcmp(what, "ask")) ask(name);
  else if (!strcmp(what, "error")) puts((error = dlerror()) ? error : "none");
  else if (!strcmp(what, "sleep")) sleep((unsigned)atoi(name));
  else if (!strcmp(what, "vfork")) run_true();
  else exit(2);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    char *name = strchr(argv[i], ':');
    if (name) *name++ = 0;
    if (strcmp(argv[i], "fork") != 0) {
      step(argv[i], name);
      continue;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child) {
      wait_for(child);
      i++;
    }
  }
  return 0;
}

/* Included before all other headers. It selects the oldest version of each function that newer C
 * libraries moved or changed, so that the library runs with glibc 2.17. A test reads which versions
 * the result needs.
 *
 * In old C libraries some of these functions are in libdl and libpthread, which the Makefile links. */
#pragma once

#ifndef __ASSEMBLER__
#if defined(__x86_64__)
#define VGPU_OLD "GLIBC_2.2.5"
#define VGPU_ROBUST "GLIBC_2.12"
#define VGPU_OLD_FILE "GLIBC_2.3.2"
#define VGPU_MAPS "GLIBC_2.3.3"
#else
#define VGPU_OLD "GLIBC_2.17"
#define VGPU_ROBUST "GLIBC_2.17"
#define VGPU_MAPS "GLIBC_2.17"
#endif

#define VGPU_VERSION(name, version) __asm__(".symver " #name "," #name "@" version);

VGPU_VERSION(dlopen, VGPU_OLD)
VGPU_VERSION(dladdr, VGPU_OLD)
VGPU_VERSION(dladdr1, VGPU_MAPS)
VGPU_VERSION(dlerror, VGPU_OLD)
VGPU_VERSION(pthread_create, VGPU_OLD)
VGPU_VERSION(pthread_detach, VGPU_OLD)
VGPU_VERSION(pthread_join, VGPU_OLD)
VGPU_VERSION(pthread_once, VGPU_OLD)
VGPU_VERSION(pthread_sigmask, VGPU_OLD)
VGPU_VERSION(pthread_key_create, VGPU_OLD)
VGPU_VERSION(pthread_getspecific, VGPU_OLD)
VGPU_VERSION(pthread_setspecific, VGPU_OLD)
VGPU_VERSION(pthread_attr_setstacksize, VGPU_OLD)
VGPU_VERSION(pthread_mutex_trylock, VGPU_OLD)
VGPU_VERSION(pthread_mutexattr_init, VGPU_OLD)
VGPU_VERSION(pthread_mutexattr_destroy, VGPU_OLD)
VGPU_VERSION(pthread_mutexattr_settype, VGPU_OLD)
VGPU_VERSION(pthread_mutexattr_setpshared, VGPU_OLD)
VGPU_VERSION(pthread_mutexattr_setrobust, VGPU_ROBUST)
VGPU_VERSION(pthread_mutex_consistent, VGPU_ROBUST)
VGPU_VERSION(sem_init, VGPU_OLD)
VGPU_VERSION(sem_wait, VGPU_OLD)
VGPU_VERSION(sem_post, VGPU_OLD)
VGPU_VERSION(sem_trywait, VGPU_OLD)
VGPU_VERSION(sem_timedwait, VGPU_OLD)

#undef VGPU_VERSION
#endif

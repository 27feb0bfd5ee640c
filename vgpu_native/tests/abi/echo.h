/* What the echoing driver saw of the last call. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

enum { ECHO_ROOM = 1024 };

struct echo {
  int function;          /* its number, -1 before a call */
  CUresult told;         /* what it is to return */
  unsigned size;         /* bytes of arguments */
  unsigned char bytes[ECHO_ROOM];
};

extern struct echo abi_echo;

/* Calls of cuGetProcAddress, of both kinds. */
extern unsigned abi_asked;

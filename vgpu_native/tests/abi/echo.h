/* The last call that the echoing driver received. */
#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

enum { ECHO_ROOM = 1024 };

struct echo {
  int function;          /* the number of the function, -1 before a call */
  CUresult told;         /* the result to return */
  unsigned size;         /* bytes of arguments */
  unsigned char bytes[ECHO_ROOM];
};

extern struct echo abi_echo;

/* Calls of cuGetProcAddress, of both kinds. */
extern unsigned abi_asked;

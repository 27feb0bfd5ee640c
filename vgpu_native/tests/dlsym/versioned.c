/* A driver whose functions have a version, for programs that look them up by dlvsym. */
int cuMemAlloc_v2(void **pointer, unsigned long size) { return 0; }
int cuCtxGetId(void *context, unsigned long long *id) { return 0; }

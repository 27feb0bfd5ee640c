/* The real dlsym: the one that this library's own dlsym replaces. */
#pragma once

typedef void *dlsym_function(void *handle, const char *name);

/* The dlsym of the C library, or of a library that was preloaded after this one; never NULL. */
dlsym_function *vgpu_real_dlsym(void);

/* The real dlsym and dlvsym: those that this library's own replace. */
#pragma once

typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);

/* That of the C library, or of a library that was preloaded after this one; never NULL. */
dlsym_function *vgpu_real_dlsym(void);
dlvsym_function *vgpu_real_dlvsym(void);

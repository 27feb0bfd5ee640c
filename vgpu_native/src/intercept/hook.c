#include "intercept/hook.h"

__thread bool vgpu_inside __attribute__((tls_model("initial-exec")));

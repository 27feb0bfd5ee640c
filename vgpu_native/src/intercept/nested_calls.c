#include "intercept/nested_calls.h"

__thread bool vgpu_inside __attribute__((tls_model("initial-exec")));

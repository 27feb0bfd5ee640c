#include "core/process.h"

union vgpu_own vgpu_own __attribute__((aligned(VGPU_PAGE)));

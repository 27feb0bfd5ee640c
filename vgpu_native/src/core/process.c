#include "core/process.h"

struct vgpu_process vgpu_process;

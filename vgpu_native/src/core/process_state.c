#include "core/process_state.h"

struct vgpu_process vgpu_process;

#include "contexts/own_growth.h"

#include "memory/granularity/granularity.h"
#include "util/fork_handlers.h"
#include "vgpu.h"

static bool claimed[VGPU_DEVICES_MAX];
static bool watched;

/* The last figure of each device, by the one who has claimed it. It still holds if neither the card's used memory nor
 * the reservations of this process have changed, because NVML is slower than cuMemGetInfo. */
static struct figure {
  uint64_t card, charged, own; /* own: 0: unknown */
} last[VGPU_DEVICES_MAX];

static void forget(void) {
  for (int i = 0; i < VGPU_DEVICES_MAX; i++) claimed[i] = false, last[i] = (struct figure){0};
}

bool vgpu_growth_claim(int entry) {
  vgpu_reset_in_children(&watched, forget);
  return !__atomic_exchange_n(&claimed[entry], true, __ATOMIC_ACQUIRE);
}

void vgpu_growth_leave(int entry) { __atomic_store_n(&claimed[entry], false, __ATOMIC_RELEASE); }

/* The own bytes while the card's are `card`. 0: unknown. */
static uint64_t own_bytes(const struct vgpu_growth *growth, uint64_t card, uint64_t charged) {
  struct figure *known = &last[growth->entry];
  struct vgpu_processes list;
  if (known->own && known->card == card && known->charged == charged) return known->own;
  vgpu_processes_read(growth->device, &list);
  *known = (struct figure){card, charged, vgpu_processes_bytes(&list, vgpu_own_pid())};
  return known->own;
}

void vgpu_growth_begin(struct vgpu_growth *growth, int entry) {
  *growth = (struct vgpu_growth){.entry = -1};
  if (entry < 0 || !vgpu_own_pid() || !vgpu_growth_claim(entry)) return;
  *growth = (struct vgpu_growth){.entry = entry, .charged = vgpu_reserved_here(entry)};
  bool known = REAL(cuCtxGetDevice)(&growth->device) == CUDA_SUCCESS && vgpu_card_used(&growth->card);
  if (known) growth->own = own_bytes(growth, growth->card, growth->charged);
  if (growth->own) return;
  vgpu_growth_leave(entry);
  growth->entry = -1;
}

bool vgpu_growth_end(struct vgpu_growth *growth, int64_t *grown) {
  uint64_t card = 0, own = 0;
  *grown = 0;
  if (growth->entry < 0) return false;
  bool known = vgpu_card_used(&card), changed = known && card != growth->card;
  if (changed) {
    uint64_t charged = vgpu_reserved_here(growth->entry);
    own = own_bytes(growth, card, charged);
    *grown = (int64_t)(own - growth->own) - (int64_t)(charged - growth->charged);
  }
  vgpu_growth_leave(growth->entry);
  if (changed && !own) *grown = 0;
  return known && (!changed || own);
}

#include "memory/charges/doubtful_charges.h"

#include <stdlib.h>

#include "memory/charges/allocation_charge.h"
#include "util/assert.h"

enum fate { LIVES, GONE, UNKNOWN };

/* The items that are in doubt. */
struct doubts {
  int entry;
  CUcontext context; /* NULL: any */
  struct vgpu_item *items;
  uint64_t count, room;
};

/* Called under a lock of the map. Without memory for an item it stays charged, which is safe. */
static bool collect(const struct vgpu_item *item, const void *data) {
  struct doubts *doubts = (struct doubts *)data;
  if (vgpu_charge_entry(item) != doubts->entry) return false;
  if (doubts->context && vgpu_charge_context(item) != doubts->context) return false;
  if (doubts->count == doubts->room) {
    uint64_t room = doubts->room ? 2 * doubts->room : 64;
    struct vgpu_item *larger = realloc(doubts->items, room * sizeof *larger);
    if (!larger) return false;
    doubts->items = larger;
    doubts->room = room;
  }
  doubts->items[doubts->count++] = *item;
  return false;
}

static enum fate fate_of(CUdeviceptr pointer) {
  unsigned type = 0;
  CUresult result = REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
  return result == CUDA_SUCCESS ? LIVES : result == CUDA_ERROR_INVALID_VALUE ? GONE : UNKNOWN;
}

/* The driver describes no arrays. They end as the other memory of their context does. */
static void end_rest(const struct doubts *doubts, CUcontext context) {
  for (uint64_t i = 0; i < doubts->count; i++)
    if (vgpu_charge_context(&doubts->items[i]) == context && fate_of(doubts->items[i].key) != GONE) return;
  vgpu_charges_end(&vgpu_arrays, context);
}

/* Returns how many items were uncharged. */
static uint64_t settle(const struct doubts *doubts, CUcontext heir) {
  uint64_t gone = 0;
  CUcontext last = NULL;
  for (uint64_t i = 0; i < doubts->count; i++) {
    const struct vgpu_item *item = &doubts->items[i];
    enum fate fate = fate_of(item->key);
    if (fate == UNKNOWN || (fate == LIVES && vgpu_charge_is_leaving(item))) vgpu_charge_doubt(doubts->entry);
    if (fate != GONE && heir) vgpu_charge_inherit(&vgpu_memory, item, heir);
    if (fate != GONE) continue;
    gone++;
    /* An item that the program freed does not show that its context has ended. */
    if (!vgpu_charge_ended(item) || vgpu_charge_is_leaving(item) || vgpu_charge_context(item) == last) continue;
    last = vgpu_charge_context(item);
    end_rest(doubts, last);
  }
  return gone;
}

static uint64_t collect_and_settle(int entry, CUcontext context, CUcontext heir) {
  struct doubts doubts = {.entry = entry, .context = context};
  if (entry < 0 || entry >= VGPU_DEVICES_MAX) return 0;
  vgpu_map_sweep(&vgpu_memory, collect, &doubts);
  uint64_t gone = settle(&doubts, heir);
  free(doubts.items);
  return gone;
}

void vgpu_doubts_settle(int entry, CUcontext context, CUcontext heir) {
  struct doubts rest = {.entry = entry, .context = context};
  collect_and_settle(entry, context, heir);
  if (heir) vgpu_map_sweep(&vgpu_arrays, collect, &rest);
  for (uint64_t i = 0; i < rest.count; i++) vgpu_charge_inherit(&vgpu_arrays, &rest.items[i], heir);
  free(rest.items);
}

bool vgpu_doubts_recheck(int entry) {
  if (entry < 0 || entry >= VGPU_DEVICES_MAX) return false;
  uint32_t bit = 1U << entry;
  if (!(__atomic_load_n(&vgpu_doubted, __ATOMIC_RELAXED) & bit)) return false;
  __atomic_fetch_and(&vgpu_doubted, ~bit, __ATOMIC_RELAXED);
  return collect_and_settle(entry, NULL, NULL) > 0;
}

/* What a kernel or a graph costs, as far as it was measured. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One kind of launch. Words are read and written one by one by all threads; a number that is lost
 * between two threads makes an estimate a little worse, and what is charged is set right anyway. */
struct vgpu_cost {
  uint64_t key;      /* 0: free */
  uint64_t ns;       /* of one launch, 0: not known yet */
  uint64_t launches; /* since one was measured last */
  uint64_t charged;  /* for those */
};

/* The place of a kind. Another kind may have to leave it, and is measured anew when it comes back. */
struct vgpu_cost *vgpu_cost_of(uint64_t key);

/* What to charge for a launch of a kind that is not known: as much as the last ones took. */
uint64_t vgpu_cost_unknown(void);

/* Take over a measurement of one launch. */
void vgpu_cost_learn(struct vgpu_cost *cost, uint64_t key, uint64_t ns);

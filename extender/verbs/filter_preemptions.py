"""The verb `preempt`: of the nodes where the scheduler would evict pods, those where it helps.

The scheduler asks only if it sees a shortage of its own resources, such as CPU, and never because
cards are missing. It has chosen the victims, and this verb adds none. It checks whether the pod
also gets cards on such a node once the victims have freed theirs.
"""

from collections.abc import Callable

from extender.analysis.fit_after_eviction import fits_after
from extender.fit.inventory_fit import InventoryFit
from extender.inventory.inventory_loading import until_loaded
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.extender_wire import (
    MetaPod,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
)
from extender.scheduler_api.scheduling_request import SchedulingRequest, SchedulingRequests
from ledger.core.decide.cards.card_checks import residents
from ledger.core.model.cards import Placement
from ledger.core.model.denials import Denial


class PreemptionFilter:
    """Answers the verb `preempt` about the pods of one cluster."""

    def __init__(
        self,
        ports: ExtenderPorts,
        *,
        requests: SchedulingRequests,
        fit: InventoryFit,
        clock: Callable[[], float],
    ) -> None:
        """`clock` is the time of the loop in seconds."""
        self._ports, self._requests, self._fit, self._clock = ports, requests, fit, clock

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return the nodes where evicting the nominated victims makes the pod fit.

        Raises ExtenderUnavailable.
        """
        if not self._fit.inventory.loaded:
            await until_loaded(self._fit.inventory, self._clock)
        assert args.pod is not None, "requests without a pod were refused"
        nominated, request = nominated_victims(args), self._requests.read(args.pod)
        if isinstance(request, Denial):
            return PreemptionResult()
        if not request.needs_cards:
            return PreemptionResult(nominated)
        fitting = {
            node: victims
            for node, victims in nominated.items()
            if fits_after(self._fit, request, node, self._placements_of(request, node, victims))
        }
        self._ports.count("extender_answers_total", "preempt", "fits" if fitting else "nowhere")
        return PreemptionResult(fitting)

    def _placements_of(
        self, request: SchedulingRequest, node: str, victims: MetaVictims
    ) -> list[Placement]:
        """Return the placements of victims on a node."""
        uids = {pod.uid for pod in victims.pods or ()}
        placed = residents(self._ports.view.state, f"{request.cluster}/{node}")
        return [placement for _, _, placement in placed if placement.uid in uids]


def nominated_victims(args: PreemptionArgs) -> dict[str, MetaVictims]:
    """Return the victims of each node by uid, in whichever form they were sent."""
    if args.node_name_to_meta_victims:
        return args.node_name_to_meta_victims
    return {
        node: MetaVictims(
            [MetaPod(pod.metadata.uid) for pod in victims.pods or ()], victims.num_pdb_violations
        )
        for node, victims in (args.node_name_to_victims or {}).items()
    }

"""Placement stages: proposed, bound, allocated, and the end of a pod's init containers. Pure.

Once the init containers have ended, a pod is charged the cards of its other containers only.
"""

from typing import TYPE_CHECKING

from extender.settlement.card_reconciler_context import SETTLED
from extender.settlement.pods_of_other_schedulers import all_cards, devices_of
from ledger.core.model import cards
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Parts, Phase, Placement, Stage
from ledger.core.model.commands import Advance
from ledger.kube.api.objects import ContainerStatus, Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.placement_annotation_reader import phased
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.placements.quota_demand_of_placement import demand_of_placement

if TYPE_CHECKING:
    from extender.settlement.placed_pod_reader import PodReading


def stage_of(pod: Pod) -> Stage:
    """Return the stage of a pod; its cards are handed out at the latest when a container runs."""
    if not pod.spec.node_name:
        return Stage.PROPOSED
    phase = (pod.metadata.annotations or {}).get(annotation_keys.BIND_PHASE)
    if phase == annotation_keys.SUCCESS or pod.status.phase == "Running" or pod.status.has_ended():
        return Stage.ALLOCATED
    return Stage.ALLOCATED if any(status.has_begun() for status in _statuses(pod)) else Stage.BOUND


def is_initialised(pod: Pod) -> bool:
    """Return whether a pod has init containers other than sidecars, all of which have succeeded."""
    init = {container.name for container, phase in phased(pod) if phase == Phase.INIT}
    succeeded = {
        status.name for status in pod.status.init_container_statuses or () if status.has_succeeded()
    }
    return bool(init) and init <= succeeded


def advance_for_observed(reading: "PodReading") -> Advance | None:
    """Return the command for the stage of a newly observed pod, None at the first stage."""
    assert reading.parts is not None, "a pod without cards is not placed"
    over = reading.initialised and _takes_first(reading.parts)
    if reading.stage <= Stage.BOUND and not over:
        return None
    where = reading.namespace, reading.key, reading.uid
    return Advance(*where, reading.stage, over, {}, SETTLED, reading.node)


def advance_if_changed(
    reading: "PodReading",
    placed: Placement,
    pod: Pod,
    node: cards.NodeCards | None,
    rules: DemandRules,
) -> Advance | None:
    """Return the command for the stage of a placement, None if it has not changed."""
    over = reading.initialised and not placed.initialised and _takes_first(placed.parts)
    if reading.stage <= placed.stage and not over:
        return None
    stands: Amounts = {}
    if over and node is not None:
        asked = placed.parts, devices_of(pod, rules), rules, all_cards(node)
        remaining = demand_of_placement(*asked, initialised=True)
        stands = {name: remaining.get(name, 0) for name in demand_of_placement(*asked)}
    where = reading.namespace, reading.key, reading.uid
    over = over or placed.initialised
    return Advance(*where, reading.stage, over, stands, SETTLED, placed.node)


def _takes_first(parts: Parts) -> bool:
    """Return whether init containers take cards."""
    return any(part.shares for part in parts if part.phase == Phase.INIT)


def _statuses(pod: Pod) -> list[ContainerStatus]:
    status = pod.status
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]

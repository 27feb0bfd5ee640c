"""The headroom of quotas for a pod is exactly the amount that placing it accepts, in any state."""

from collections.abc import Iterator

import pytest
from support.builders.decide_and_fold import apply
from support.generators.random_commands import CLUSTER, random_commands

from ledger.core.decide.decider import decide
from ledger.core.decide.headroom_for_cards import most
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.state import State

MEMORY = "nvidia.com/gpumem"
NODE = f"{CLUSTER}/n1"
PARTS = (Part("main", Phase.APP, (Share("GPU-0", 1, 0),)),)
Pod = tuple[str, str, str]


@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5, 6])
def test_a_pod_may_be_charged_its_headroom_and_not_more(seed: int) -> None:
    state, bounded = State(), 0
    apply(state, commands.RegisterCluster(CLUSTER, "uid"))
    apply(state, commands.RegisterCards(NODE, OWN, (Card("GPU-0", 0, "T4", 10**6, 100, 1000),)))
    for command in random_commands(seed, 200):
        apply(state, command)
        for pod in _pods(state):
            room = most(state, *pod, MEMORY)
            assert not _is_refused(state, pod, 10**9 if room is None else room)
            if room is not None:
                bounded += 1
                assert _is_refused(state, pod, room + 1)
    assert bounded > 100


def _pods(state: State) -> Iterator[Pod]:
    """Yield the pods that are charged for something."""
    for namespace, space in state.namespaces.items():
        for key, entry in space.entries.items():
            for body in entry.bodies():
                if key.startswith(PODS) and body.demand:
                    yield namespace, key, body.uid


def _is_refused(state: State, pod: Pod, memory: int) -> bool:
    command = commands.Place(*pod, NODE, PARTS, {MEMORY: memory})
    decision = decide(state, command)
    return isinstance(decision, Denial) and decision.reason == Reason.RESOURCE_QUOTA_NOT_FIT

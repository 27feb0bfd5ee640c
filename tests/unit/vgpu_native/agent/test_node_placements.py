"""Node placements equal those of the whole state, and a broken chain raises an error."""

import pytest
from support.builders.decide_and_fold import record
from support.generators.card_commands import NODES, random_life

from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share, Stage
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Lost
from vgpu_native.agent.node_placements import NodeImage, NodePlacements, PlacedPod, image_of

SEEDS = range(40)
STEPS = 150


def log_of(seed: int, state: State) -> list[bytes]:
    """Return a log of random lives of pods on three nodes; a record has one command."""
    made: list[bytes] = []
    for command in random_life(seed, STEPS, state):
        payload = record(state, [command], time=len(made))
        if payload is not None:
            made.append(payload)
    return made


def at(pod: PlacedPod) -> tuple[str, str]:
    return pod.namespace, pod.key


def odd_keys(state: State) -> set[tuple[str, str]]:
    """Return the keys with several assumed pods, or with a pod that was never created.

    Random lives make them, but no API server does.
    """
    keys = set()
    for name, space in state.namespaces.items():
        for key, entry in space.entries.items():
            bodies = entry.bodies()
            created = entry.committed is not None or any(not hold.base for hold in entry.holds)
            if not created or len({body.uid for body in bodies}) > 1:
                keys.add((name, key))
    return keys


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_has_the_placements_that_the_state_has(seed: int) -> None:
    folded, odd, most = State(), set[tuple[str, str]](), 0
    trackers = [NodePlacements(NodeImage(node)) for node in NODES]
    for position, payload in enumerate(log_of(seed, State()), 1):
        records.fold(folded, position, payload)
        odd |= odd_keys(folded)
        for tracker in trackers:
            before = tracker.residents
            assert tracker.take(position, payload) == (tracker.residents != before)
            exact = {
                resident
                for resident in image_of(folded, tracker.node).residents
                if at(resident) not in odd
            }
            assert {resident for resident in tracker.residents if at(resident) not in odd} == exact
            most = max(most, len(exact))
    assert most, "nothing was compared"


def test_a_tracker_from_a_state_or_an_image_equals_one_from_the_start() -> None:
    state, log = State(), log_of(3, State())
    whole, parts = NodePlacements(NodeImage(NODES[0])), NodePlacements(NodeImage(NODES[0]))
    stages = set()
    for position, payload in enumerate(log, 1):
        whole.take(position, payload)
        parts.take(position, payload)
        records.fold(state, position, payload)
        assert parts.residents == whole.residents
        stages |= {resident.stage for resident in whole.residents}
        if position % 10 == 0:
            parts = NodePlacements(image_of(state, NODES[0]) if position % 20 else parts.image())
    assert stages == set(Stage)


def test_a_changed_missing_or_foreign_record_is_rejected() -> None:
    log, other = log_of(1, State()), log_of(2, State())
    tracker = NodePlacements(NodeImage(NODES[0]))
    for position in (1, 2, 3):
        tracker.take(position, log[position - 1])
    with pytest.raises(Lost, match="does not follow on 3"):
        tracker.take(5, log[4])
    with pytest.raises(Lost, match="does not follow from the one before"):
        tracker.take(4, other[3])
    with pytest.raises(Lost, match="position 4"):
        tracker.take(4, log[3][:-1] + b"\0")
    tracker.take(4, log[3])


@pytest.mark.parametrize("ending", ["unplaced", "deleted", "another pod of the name"])
def test_a_pod_is_gone_when_it_ended_or_another_has_its_name(ending: str) -> None:
    state, tracker = State(), NodePlacements(NodeImage(NODES[0]))
    where = ("c1/red", "pods/p", "uid-1")
    parts = (Part("main", Phase.APP, (Share("GPU-a", 10, 10),)),)
    ends: dict[str, commands.AnyCommand] = {
        "unplaced": commands.Unplace(*where, NODES[0], "unbound"),
        "deleted": commands.End(*where, 2, "deleted"),
        "another pod of the name": commands.Observe("c1/red", "pods/p", "uid-2", 3, {"x/y": 1}),
    }
    for command in (
        commands.RegisterCards(NODES[0], OWN, (Card("GPU-a", 0, "H200", 100, 100, 4),)),
        commands.Observe(*where, 1, {"x/y": 1}),
        commands.Place(*where, NODES[0], parts, {}),
    ):
        take(tracker, state, command)
    assert [resident.uid for resident in tracker.residents] == ["uid-1"]
    assert take(tracker, state, ends[ending])
    assert tracker.residents == ()
    assert image_of(state, NODES[0]).residents == ()


def take(tracker: NodePlacements, state: State, command: commands.AnyCommand) -> bool:
    payload = record(state, [command], time=state.position)
    assert payload is not None, f"{command} is denied"
    return tracker.take(state.position, payload)

"""Placement records: random pods are placed, resized and ended on nodes that come and go."""

import random

from support.builders.decide_and_fold import record
from support.generators.random_commands import CLUSTER, RESOURCES, random_commands

from ledger.core.model import commands
from ledger.core.model.cards import HAMI, OWN, Card, Part, Parts, Phase, Share, Stage
from ledger.core.model.state import State

NODES = (f"{CLUSTER}/n1", f"{CLUSTER}/n2")
UUIDS = ("GPU-a", "GPU-b", "GPU-c")
START = 1_750_000_000_000_000
SECOND = 1_000_000


def placement_payloads(seed: int, count: int, *, group: int = 3) -> list[bytes]:
    """Return records of random commands, of which every other one is about nodes and cards."""
    source, state, payloads = random.Random(seed), State(), list[bytes]()
    made: list[commands.AnyCommand] = [commands.RegisterCluster(CLUSTER, f"uid-{seed}")]
    for number, command in enumerate(random_commands(seed, count)):
        made += (command, placing_command(source, state))
        if number % group == 0:
            payload = record(state, made, time=START + len(payloads) * SECOND)
            payloads += [payload] if payload is not None else []
            made = []
    return payloads


def placing_command(source: random.Random, state: State) -> commands.AnyCommand:
    """Return a command about a node, or about a pod of the ledger."""
    pods = [
        (namespace, key, body.uid)
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for body in entry.bodies()
        if key.startswith("pods/")
    ]
    if not pods or source.random() < 0.3:
        return _node(source)
    return _pod(source, state, source.choice(pods))


def _node(source: random.Random) -> commands.AnyCommand:
    node = source.choice(NODES)
    if source.random() < 0.2:
        return commands.RemoveNode(node)
    uuids = source.sample(UUIDS, source.randint(1, len(UUIDS)))
    announced = tuple(_card(source, uuid) for uuid in sorted(uuids))
    return commands.RegisterCards(node, source.choice((HAMI, OWN, OWN)), announced)


def _card(source: random.Random, uuid: str) -> Card:
    limits = source.choice((10, 20)), 100, source.choice((2, 10))
    return Card(uuid, UUIDS.index(uuid), "T4", *limits, healthy=source.random() < 0.9)


def _pod(source: random.Random, state: State, pod: tuple[str, str, str]) -> commands.AnyCommand:
    placed = state.namespaces[pod[0]].placed.get(pod[1])
    if placed is None or placed.uid != pod[2] or not placed.node:
        parts, seen = _parts(source), source.random() < 0.3
        node = source.choice(NODES)
        return commands.Place(*pod, node, parts, _stands(source), seen=seen)
    match source.randint(0, 2):
        case 0:
            return commands.Unplace(*pod, placed.node, "unbound")
        case 1:
            stage, over = source.choice(list(Stage)), source.random() < 0.5
            return commands.Advance(*pod, stage, over, _stands(source))
    return commands.Resize(*pod, _resized(source, placed.parts), _stands(source))


def _stands(source: random.Random) -> dict[str, int]:
    """Return the demand that cards decided, mostly {}."""
    return {source.choice(RESOURCES): source.randint(1, 6)} if source.random() < 0.5 else {}


def _parts(source: random.Random) -> Parts:
    phases = source.choice(((Phase.APP,), (Phase.INIT, Phase.APP), (Phase.SIDECAR, Phase.APP)))
    return tuple(Part(f"c{number}", phase, _shares(source)) for number, phase in enumerate(phases))


def _shares(source: random.Random) -> tuple[Share, ...]:
    uuids = sorted(source.sample(UUIDS, source.randint(1, 2)))
    alone = source.random() < 0.1
    return tuple(
        Share(uuid, source.randint(0, 8), source.choice((0, 10, 50)), alone) for uuid in uuids
    )


def _resized(source: random.Random, parts: Parts) -> Parts:
    return tuple(
        Part(
            part.container,
            part.phase,
            tuple(Share(share.uuid, source.randint(0, 8), share.cores) for share in part.shares),
        )
        for part in parts
    )

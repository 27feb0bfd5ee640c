"""Likely container: chooses the container of an `Allocate` call, which does not name it. Pure.

The kubelet allocates the containers of a pod in order, and pods one after the other. So the call
can only be for the first container of a pod without cards, and only if the number of cards matches.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from vgpu_native.plugin.allocation.allocation_store import Allocation, is_fresh
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.placement_source import PlacedContainer


def containers_with_cards(
    allocations: Iterable[Allocation], now: int, entries: Sequence[CheckpointEntry] | None
) -> set[tuple[str, str]]:
    """Return the keys of the containers that have responses; `now` in µs of Unix time.

    They are the containers of the kubelet's checkpoint, and the owners of responses that are too
    new to be in it. Without a checkpoint they are the owners of all allocations.
    """
    owned = [
        (allocation, allocation.owner) for allocation in allocations if allocation.owner is not None
    ]
    if entries is None:
        return {owner.key for _, owner in owned}
    stored = {(entry.uid, entry.container) for entry in entries}
    return stored | {
        owner.key
        for allocation, owner in owned
        if not allocation.tied and is_fresh(allocation, now)
    }


class LikelyContainer(msgspec.Struct, frozen=True):
    """The likely container; with `alike`, all candidates have the same shares.

    With `same_cards`, only the amounts differ; the plugin can correct these until the start.
    """

    container: PlacedContainer
    same_cards: bool
    alike: bool


def candidates(
    containers: Iterable[PlacedContainer],
    given: Collection[tuple[str, str]],
    count: int,
    latest: str = "",
) -> list[PlacedContainer]:
    """Return the candidates for a call with `count` devices, likeliest first.

    `given` are the keys of containers that have their responses. `latest` is the uid of the pod of
    the last response: the kubelet finishes one pod before it begins another.
    """
    firsts: dict[str, PlacedContainer] = {}
    for container in containers:
        if container.shares and container.key not in given:
            first = firsts.get(container.uid)
            if first is None or container.order < first.order:
                firsts[container.uid] = container
    fitting = (container for container in firsts.values() if len(container.shares) == count)
    return sorted(
        fitting,
        key=lambda container: (
            container.uid != latest,
            container.time,
            container.namespace,
            container.pod,
            container.uid,
        ),
    )


def choose(containers: Sequence[PlacedContainer]) -> LikelyContainer | None:
    """Return the likeliest of the candidates; None if there is none."""
    if not containers:
        return None
    first = containers[0]
    return LikelyContainer(
        first,
        all(_cards(container) == _cards(first) for container in containers),
        all(container.shares == first.shares for container in containers),
    )


def _cards(container: PlacedContainer) -> tuple[frozenset[str], bool]:
    return frozenset(container.cards), container.exclusive

"""Fragmentation: pods of mixed sizes come and go, and kube-scheduler chooses nodes in two ways.

`SCORED` asks filter and prioritize and adds the scheduler's own scores to those of the extender.
`SELECTED` asks select and chooses among its nodes by the scheduler's own scores. Both get the same
pods on the same cards. The fragmentation is the number of pods without room, and what of the free
memory lies on cards in use.
"""

from collections import Counter
from random import Random
from typing import Final, NamedTuple

from support.harness.extender_harness import (
    CLUSTER,
    NAMESPACE,
    ExtenderReplica,
    ModelServer,
    pod,
    replica,
)

from extender.fit.inventory_fit import FitPreferences
from extender.scheduler_api.extender_wire import ExtenderArgs
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model.cards import Card
from ledger.core.model.commands import End, Observe
from ledger.kube.api.objects import Pod

SCORED, SELECTED = WAYS = ("scored", "selected")

CARDS: Final = 8
MEMORY: Final = 80_000
SHAPES: Final = (
    {"gpu": 1, "gpumem": 8_000, "gpucores": 10},
    {"gpu": 1, "gpumem": 20_000, "gpucores": 25},
    {"gpu": 1, "gpumem": 40_000, "gpucores": 50},
    {"gpu": 2, "gpumem": 40_000, "gpucores": 50},
    {"gpu": 1, "gpumem": 80_000, "gpucores": 100},
    {"gpu": 4, "gpumem": 80_000, "gpucores": 100},
    {"gpu": 8, "gpumem": 80_000, "gpucores": 100},
)
WEIGHTS: Final = (30, 20, 15, 10, 15, 6, 4)
"""How frequent each shape is."""

TIMES: Final = 1_000
"""Points of kube-scheduler for one point of the extender: weight 100, and 100 instead of 10."""

OWN_MAX: Final = 200
"""Points by which kube-scheduler's own scores prefer an empty node to a full one."""


class Fragmentation(NamedTuple):
    """Pods without room, unused cards at the end, and free MiB on the other cards."""

    refused: int
    unused: int
    splinters: int


async def fragmentation(
    way: str, seed: int, *, nodes: int = 6, pods: int = 120, policy: str = "binpack"
) -> Fragmentation:
    """Return the fragmentation after these pods, of which a third leaves before the end."""
    settings = ExtenderSettings(FitPreferences(node_policy=policy))
    server = ModelServer()
    async with replica(server=server, settings=settings) as service:
        names = [f"n{number}" for number in range(nodes)]
        for name in names:
            await service.register(name, _cards(name))
        return await _Cluster(service, server, Random(seed), names).filled(way, pods)


class _Cluster:
    """The nodes, and the pods on them."""

    def __init__(
        self, service: ExtenderReplica, server: ModelServer, source: Random, names: list[str]
    ) -> None:
        self._service, self._server, self._source, self._names = service, server, source, names
        self._on = Counter[str]()
        self._running: list[tuple[Pod, str]] = []
        self._refused = 0

    async def filled(self, way: str, pods: int) -> Fragmentation:
        for number in range(pods):
            [shape] = self._source.choices(SHAPES, WEIGHTS)
            leaves = self._source.random() < 0.33
            which = self._source.random()
            if leaves and self._running:
                await self._end(*self._running.pop(int(which * len(self._running))))
            await self._place(way, pod(f"p-{number}", **shape))
        arrays = self._service.inventory.arrays
        free, used = arrays.memory - arrays.used_memory, arrays.used_slots > 0
        unused = int((arrays.present & ~used).sum())
        return Fragmentation(self._refused, unused, int(free[used].sum()))

    async def _place(self, way: str, pending: Pod) -> None:
        node = await (self._scored(pending) if way == SCORED else self._selected(pending))
        if not node:
            self._refused += 1
            return
        self._server.add(pending)
        await self._service.create(pending)
        assert await self._service.bind(pending, node) == ""
        self._on[node] += 1
        self._running.append((pending, node))

    async def _scored(self, pending: Pod) -> str:
        names = await self._service.places(pending, *self._names)
        if len(names) < 2:
            return "".join(names)
        args = ExtenderArgs(pending, None, names)
        scores = {
            each.host: TIMES * each.score + self._own(each.host)
            for each in await self._service.extender.prioritize(args)
        }
        return max(scores, key=lambda name: scores[name])

    async def _selected(self, pending: Pod) -> str:
        answer = await self._service.extender.select(ExtenderArgs(pending, None, self._names))
        return max(answer.node_names or [""], key=self._own)

    def _own(self, node: str) -> float:
        """Return kube-scheduler's own score of a node: it prefers nodes with few pods."""
        return OWN_MAX / (1 + self._on[node])

    async def _end(self, running: Pod, node: str) -> None:
        meta = running.metadata
        key = f"{CLUSTER}/{NAMESPACE}", f"pods/{meta.name}", meta.uid
        await self._service.tell(Observe(*key, 1, {}))
        await self._service.tell(End(*key, 2, "deleted"))
        self._on[node] -= 1


def _cards(node: str) -> tuple[Card, ...]:
    return tuple(
        Card(f"GPU-{node}-{number}", number, "NVIDIA-A100", MEMORY, 100, 10)
        for number in range(CARDS)
    )

"""Card author: the operations of a script about nodes, cards and the pods on them."""

import random
from collections.abc import Callable
from typing import Final

from simulation.model.hami_annotations import OWN
from simulation.model.operations import (
    Annotate,
    CardSpec,
    ClaimCards,
    Create,
    DropNode,
    Ending,
    Kill,
    Operation,
    PlaceByHami,
    SetNode,
    SetQuota,
)
from simulation.model.settings import NODES
from simulation.script.operations_author import NAMESPACES, QUOTAS

HAMI: Final = "hami"

_PICKS: Final = 1_000
_CARDS_MAX: Final = 2
_ROOM: Final = {"limits.nvidia.com/gpumem": "96k"}

_CROWDS_SECONDS: Final = 6.0
_CROWDED_SHARE: Final = 0.7


class CardAuthor:
    """Makes operations about cards from a seeded source."""

    def __init__(self, source: random.Random, clusters: int, replicas: int) -> None:
        self._source = source
        self._clusters = clusters
        self._replicas = replicas
        self._keepers = {name: source.choice((HAMI, OWN)) for name in NODES}
        self._names = NODES[: source.randint(1, len(NODES))]

    def begin(self) -> list[Operation]:
        """All nodes announce their cards, and quotas leave room for pods on them."""
        made: list[Operation] = []
        for cluster in range(self._clusters):
            made += [
                SetNode(0.0, cluster, name, self._cards(whole=True), self._keepers[name])
                for name in self._names
            ]
            made += [SetQuota(0.0, cluster, name, QUOTAS[0], _ROOM) for name in NAMESPACES]
        return made

    def operation(self, at: float) -> Operation:
        """Something happens to a node or to a pod on cards."""
        made: tuple[Callable[[float], Operation], ...] = (
            *(self._create, self._set_node, self._drop_node),
            *(self._place_elsewise, self._annotate, self._keep_room, self._kill),
        )
        return self._source.choices(made, (14, 4, 1, 2, 2, 2, 2))[0](at)

    def _create(self, at: float) -> Create:
        """A pod is posted that asks for little, or for a card of its own; many come in crowds."""
        source = self._source
        crowd = 1.0 + at // _CROWDS_SECONDS * _CROWDS_SECONDS
        return Create(
            crowd if source.random() < _CROWDED_SHARE else at,
            self._cluster(),
            source.choice(NAMESPACES),
            "",
            source.choice((1, 1, 1, 2)),
            source.choice((1_000, 2_000, 4_000)),
            "",
            Ending.STORED,
            cores=source.choice((0, 0, 40, 100)),
        )

    def _set_node(self, at: float) -> SetNode:
        """A node changes: cards are gone, replaced, ill or cordoned, or the node is silent."""
        source, name = self._source, self._source.choice(self._names)
        cards = None if source.random() < 0.2 else self._cards(whole=source.random() < 0.4)
        ready = source.random() < 0.8
        return SetNode(at, self._cluster(), name, cards, self._keepers[name], ready)

    def _drop_node(self, at: float) -> DropNode:
        """A node is deleted."""
        return DropNode(at, self._cluster(), self._source.choice(self._names))

    def _place_elsewise(self, at: float) -> PlaceByHami:
        """Another scheduler binds a pod."""
        return PlaceByHami(at, self._cluster(), *self._picks())

    def _annotate(self, at: float) -> Annotate:
        """Annotations of a pod are changed."""
        pick, _, card = self._picks()
        return Annotate(at, self._cluster(), pick, card)

    def _keep_room(self, at: float) -> ClaimCards:
        """Cards are kept for a pod."""
        return ClaimCards(at, self._cluster(), *self._picks())

    def _cards(self, *, whole: bool) -> tuple[CardSpec, ...]:
        """Return cards of a node; unless it is `whole`, some are missing, ill or closed."""
        source = self._source
        count = _CARDS_MAX if whole else source.randint(1, _CARDS_MAX)
        return tuple(
            CardSpec(
                f"GPU-{number}",
                source.choice((4_000, 8_000, 8_000)),
                source.choice((2, 4)),
                healthy=whole or source.random() < 0.7,
                cordoned=not whole and source.random() < 0.15,
            )
            for number in range(count)
        )

    def _kill(self, at: float) -> Operation:
        """A replica is killed, perhaps while it binds a pod."""
        return Kill(at, self._source.randrange(self._replicas), self._source.choice((1.0, 6.0)))

    def _cluster(self) -> int:
        return self._source.randrange(self._clusters)

    def _picks(self) -> tuple[int, int, int]:
        source = self._source
        return source.randrange(_PICKS), source.randrange(_PICKS), source.randrange(_PICKS)

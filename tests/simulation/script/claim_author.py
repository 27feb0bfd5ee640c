"""Claim author: the operations of a script about resource claims and the pods that use them."""

import random
from collections.abc import Callable
from typing import Final

from simulation.model import kinds
from simulation.model.operations import (
    Create,
    CreateClaim,
    CreateRoot,
    DeleteClaim,
    DeleteRoot,
    Deletion,
    Ending,
    Kill,
    Operation,
    SetSlice,
    SetTemplate,
    SharedCard,
)
from simulation.model.settings import NODES
from simulation.script.operations_author import APPS, LATE_SECONDS_MAX, NAMESPACES, ROOT_NAMES

TEMPLATES: Final = ("small", "other")
CLAIM_NAMES: Final = ("own", "shared", "spare")

_PICKS: Final = 1_000
_SIZES: Final = (500, 1_000, 1_300, 2_000)
_CARDS: Final = (SharedCard(8_000, 500), SharedCard(8_000, 2_000), SharedCard(16_000, 3_000))


class ClaimAuthor:
    """Makes operations about resource claims from a seeded source."""

    def __init__(self, source: random.Random, clusters: int, replicas: int) -> None:
        self._source = source
        self._clusters = clusters
        self._replicas = replicas
        self._nodes = NODES[: source.randint(1, len(NODES))]
        # Changes make the charge less certain, so only some runs have them.
        self._slices_change = int(source.random() < 0.4)
        self._templates_change = int(source.random() < 0.5)

    def begin(self) -> list[Operation]:
        """Drivers publish all cards, and all templates exist."""
        made: list[Operation] = []
        for cluster in range(self._clusters):
            made += [SetSlice(0.0, cluster, node, self._cards()) for node in self._nodes]
            made += [
                SetTemplate(0.0, cluster, namespace, name, self._source.choice(_SIZES))
                for namespace in NAMESPACES
                for name in TEMPLATES
            ]
        return made

    def operation(self, at: float) -> Operation:
        """Something happens to claims, or to pods that use them."""
        made: tuple[Callable[[float], Operation], ...] = (
            *(self._create_pod, self._create_root, self._create_claim),
            *(self._delete_claim, self._delete_root, self._kill),
            *(self._set_template, self._set_slice),
        )
        weights = (10, 4, 6, 3, 1, 2, 3 * self._templates_change, 3 * self._slices_change)
        return self._source.choices(made, weights)[0](at)

    def _create_pod(self, at: float) -> Create:
        source = self._source
        claims = tuple(source.sample(CLAIM_NAMES, source.choice((0, 0, 1, 2))))
        return Create(
            at,
            self._cluster(),
            source.choice(NAMESPACES),
            "",
            1,
            1_000,
            "",
            self._ending(),
            collisions=source.choice((0, 0, 1)),
            late=source.random() * LATE_SECONDS_MAX,
            unreviewed=source.random() < 0.03,
            app=source.choice(APPS),
            template="" if claims and source.random() < 0.5 else source.choice(TEMPLATES),
            claims=claims,
        )

    def _create_root(self, at: float) -> CreateRoot:
        source = self._source
        return CreateRoot(
            at,
            self._cluster(),
            source.choice(NAMESPACES),
            source.choice(list(kinds.ROOTS)),
            source.choice(ROOT_NAMES),
            source.choice((1, 2, 2)),
            1_000,
            self._ending(),
            late=source.random() * LATE_SECONDS_MAX,
            retries=source.choice((0, 1)),
            app=source.choice(APPS),
            template=source.choice(TEMPLATES),
        )

    def _create_claim(self, at: float) -> CreateClaim:
        source = self._source
        return CreateClaim(
            at,
            self._cluster(),
            source.choice(NAMESPACES),
            source.choice(CLAIM_NAMES),
            source.choice(_SIZES),
            source.choice((1, 1, 1, 2)),
            self._ending(),
            late=source.random() * LATE_SECONDS_MAX,
            retries=source.choice((0, 0, 1)),
            unreviewed=source.random() < 0.05,
            app=source.choice(APPS),
        )

    def _delete_claim(self, at: float) -> DeleteClaim:
        return DeleteClaim(at, self._cluster(), self._source.randrange(_PICKS))

    def _delete_root(self, at: float) -> DeleteRoot:
        source = self._source
        pick = source.randrange(_PICKS)
        return DeleteRoot(at, self._cluster(), pick, source.choice(list(Deletion)))

    def _set_template(self, at: float) -> SetTemplate:
        source = self._source
        where = self._cluster(), source.choice(NAMESPACES), source.choice(TEMPLATES)
        return SetTemplate(at, *where, source.choice((None, *_SIZES)))

    def _set_slice(self, at: float) -> SetSlice:
        return SetSlice(at, self._cluster(), self._source.choice(self._nodes), self._cards())

    def _kill(self, at: float) -> Kill:
        return Kill(at, self._source.randrange(self._replicas), self._source.choice((1.0, 6.0)))

    def _cards(self) -> tuple[SharedCard, ...]:
        return tuple(self._source.choice(_CARDS) for _ in range(self._source.randint(1, 2)))

    def _cluster(self) -> int:
        return self._source.randrange(self._clusters)

    def _ending(self) -> Ending:
        source = self._source
        return Ending.STORED if source.random() < 0.7 else source.choice(list(Ending))

"""Scripts: the operations of users, controllers, kubelets and faults in one run, from a seed.

A script is plain data, made before anything runs, so that a failing one can be shortened by
leaving operations out.
"""

import random
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from extender.verbs.filter_nodes import FILTER, SELECT
from simulation.model import operations
from simulation.model.operations import Operation
from simulation.model.settings import CLUSTERS
from simulation.script.card_author import CardAuthor
from simulation.script.claim_author import ClaimAuthor
from simulation.script.operations_author import NAMESPACES, QUOTAS, OperationsAuthor

REPLICAS_MAX: Final = 3

NEVER: Final = 1e6
"""Seconds that no run lasts."""

BIG_EVERY: Final = 10
"""Every so many seeds a script is some times longer."""


CARD_SEEDS: Final = range(3, 2**63, 8)
"""The seeds in which pods are placed on cards."""


CLAIM_SEEDS: Final = range(5, 2**63, 8)
"""The seeds in which there are resource claims."""


REPLICAS_LEAST: Final = 2
"""Fewer replicas than these do not meet on one card."""


_VERBS_OF_RUNS: Final = ((SELECT, SELECT), (SELECT, SELECT), (FILTER, FILTER), (SELECT, FILTER))
"""The verbs of two schedulers in a run; the shipped scheduler is configured with `select`."""


class Script(msgspec.Struct, frozen=True):
    """One run: how many clusters and replicas, what happens, and whether the log loses its tail.

    Replicas take turns in serving the clusters. Settlement lists everything again after `recount`
    seconds. `schedulers` has the verb by which each finds nodes; without any, nothing is placed.
    With `has_claims` there are controllers of resource claims. `binding_trouble` and
    `label_trouble` are the shares of Bindings and of labels on pods that something happens to.
    """

    seed: int
    clusters: int
    replicas: int
    operations: tuple[Operation, ...]
    recount: float
    cut_tail: bool = False
    schedulers: tuple[str, ...] = ()
    has_claims: bool = False
    binding_trouble: float = 0.0
    label_trouble: float = 0.0


def write(seed: int) -> Script:
    """Return the script of a seed."""
    plan = _ScriptWriter(seed).script()
    if seed in CLAIM_SEEDS:
        return _with_claims(plan)
    return _with_cards(plan) if seed in CARD_SEEDS else plan


def _with_claims(plan: Script) -> Script:
    """Return a script in which there are resource claims, too, and devices for them."""
    source = random.Random(f"claims {plan.seed}")
    author = ClaimAuthor(source, plan.clusters, plan.replicas)
    return _joined(msgspec.structs.replace(plan, has_claims=True), author, source)


def _joined(plan: Script, author: CardAuthor | ClaimAuthor, source: random.Random) -> Script:
    """Return a script with operations of an author among those that it has."""
    last = max((operation.at for operation in plan.operations), default=0.0)
    made = [*plan.operations, *author.begin()]
    made += [author.operation(1.0 + source.random() * last) for _ in range(source.randint(15, 50))]
    made.sort(key=lambda operation: operation.at)
    return msgspec.structs.replace(plan, operations=tuple(made))


def _with_cards(plan: Script) -> Script:
    """Return a script in which there are nodes, too, and pods are placed on their cards."""
    source = random.Random(f"cards {plan.seed}")
    replicas = max(REPLICAS_LEAST, plan.replicas)
    author = CardAuthor(source, plan.clusters, replicas)
    return msgspec.structs.replace(
        _joined(plan, author, source),
        replicas=replicas,
        schedulers=_verbs(plan.seed, source.choice((1, 2, 2))),
        binding_trouble=source.choice((0.0, 0.1, 0.4, 0.7)),
        label_trouble=source.choice((0.0, 0.3, 0.9)),
    )


def _verbs(seed: int, schedulers: int) -> tuple[str, ...]:
    """Return the verb of each scheduler, from a source that no other choice depends on."""
    source = random.Random(f"verbs {seed}")
    return tuple(source.choice(_VERBS_OF_RUNS)[:schedulers])


class _Theme(Enum):
    """The operations that a script has more of, so that rare things meet.

    The numbers are the weights of pods (create, update, status, delete), of roots (create, change,
    progress, delete), of limits (quota, universe quota, label, region, policy).
    """

    NOTHING = (14, 8, 2, 5), (2, 2, 0, 1), (3, 1, 1, 0, 0)
    STUBBORN = (8, 14, 1, 2), (0, 1, 0, 0), (3, 0, 0, 0, 0)
    CHATTY = (26, 3, 1, 3), (0, 0, 0, 0), (2, 0, 0, 0, 0)
    ROOTS = (5, 3, 3, 3), (14, 16, 8, 5), (3, 1, 1, 0, 1)
    UNIVERSE = (8, 3, 1, 3), (5, 5, 1, 2), (3, 5, 5, 1, 3)


_SHARES: Final = (1, 2, 2, 2, 2)
"""How often each theme is played; what only one of them finds is rare."""

_BOTH_CLUSTERS: Final = {_Theme.STUBBORN: 0.0, _Theme.CHATTY: 0.1, _Theme.UNIVERSE: 0.7}
"""Share of the runs of a theme that have two clusters; the others go deeper into one."""


class _ScriptWriter:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._source = source = random.Random(f"script {seed}")
        self._theme = source.choices(list(_Theme), _SHARES)[0]
        both = source.random() < _BOTH_CLUSTERS.get(self._theme, 0.3)
        self._clusters = len(CLUSTERS) if both else 1
        # Messages between replicas take two of them, most of all where there are many.
        least = 2 if self._theme is _Theme.CHATTY else self._clusters
        self._replicas = source.randint(least, REPLICAS_MAX)
        self._hostile = source.random() < 0.6
        self._author = OperationsAuthor(source, self._replicas, chatty=self._theme is _Theme.CHATTY)

    def script(self) -> Script:
        source, author = self._source, self._author
        count = source.randint(12, 45) * (4 if self._seed % BIG_EVERY == BIG_EVERY - 1 else 1)
        seconds = 8.0 + count * 0.5
        made: list[Operation] = [
            msgspec.structs.replace(author.quota(0.0), cluster=cluster, namespace=namespace,
                                    name=QUOTAS[0], priority="")
            for cluster in range(self._clusters)
            for namespace in NAMESPACES
        ]  # fmt: skip
        if self._theme is _Theme.UNIVERSE:
            made.append(author.universe(0.0))
        made += [self._operation(1.0 + source.random() * seconds) for _ in range(count)]
        made.sort(key=lambda operation: operation.at)
        recount = source.choice((20.0, NEVER))
        cut = source.random() < 0.15
        return Script(self._seed, self._clusters, self._replicas, tuple(made), recount, cut)

    def _operation(self, at: float) -> Operation:
        author = self._author
        made: tuple[Callable[[float], Operation], ...] = (
            *(author.create, self._update, author.status, author.delete),
            *(author.create_root, author.change_root, author.progress, author.delete_root),
            *(author.any_quota, author.any_universe, author.label),
            *(author.move, author.policy),
            *(author.kill, author.lease, author.clock, author.stall, author.lists),
            *(author.storm, author.partition, author.cut_link, author.snapshot),
        )
        link = self._clusters - 1
        bad = (2, 1, 1, 2, 2, 2, 1, link, 2) if self._hostile else (1, 1, 0, 1, 1, 0, 0, 0, 1)
        usual = (weight for part in self._theme.value for weight in part)
        return self._source.choices(made, (*usual, *bad))[0](at)

    def _update(self, at: float) -> operations.Update:
        return self._author.update(at, stubborn=self._theme is _Theme.STUBBORN)

"""The HAMi import: nodes and bound pods of a cluster that ran HAMi, once and all at once.

The importer makes the same commands as settlement, node by node and pod by pod, and reports their
outcome. The caller passes the function that decides them, which may be a dry run.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import structs

from extender.settlement import (
    node_card_health,
    placed_pod_reader,
    placement_drift,
    placement_stages,
    pods_of_other_schedulers,
)
from extender.settlement.hami.hami_card_bookings import HamiBooking, hami_bookings
from extender.settlement.node_card_health import NodeRules
from ledger.core.model.cards import Card
from ledger.core.model.commands import AnyCommand, RegisterCards
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import local_name, qualified
from ledger.core.model.state import State
from ledger.kube.api.objects import ApiNode, Pod
from ledger.kube.cluster.hami_accounts import HamiAccounts
from ledger.kube.requests.demand_rules import DemandRules

ACTOR: Final = "import"

Decide = Callable[[AnyCommand], Awaitable[Denial | None]]
"""Decides a command and applies it to the state that `HamiImporter` reads."""

MakeKnown = Callable[[Pod], Awaitable[Denial | None]]
"""Records a pod in the ledger, unless it is there already."""


class ImportProblem(msgspec.Struct, frozen=True):
    """A node or pod that was not imported, and why."""

    kind: str
    name: str
    reason: str


class CardTotal(msgspec.Struct, frozen=True):
    """The use of a card by the ledger and by HAMi's rules: MiB, percent, containers."""

    node: str
    uuid: str
    memory: int
    used_memory: int
    hami_memory: int
    used_cores: int
    hami_cores: int
    used_slots: int
    hami_slots: int


class ImportReport(msgspec.Struct, frozen=True):
    """The outcome of an import, with the numbers of new and known nodes and pods.

    `accounts` are HAMi's, None if they were not read. `settings` are the lines that gpuledger.toml
    lacks: trusted accounts, and the schedulers that place on cards.
    """

    dry_run: bool
    nodes: int
    nodes_known: int
    pods: int
    pods_known: int
    problems: tuple[ImportProblem, ...]
    cards: tuple[CardTotal, ...]
    accounts: HamiAccounts | None = None
    settings: tuple[str, ...] = ()


class HamiImporter:
    """Imports one cluster. `state` returns the state after the commands decided so far."""

    def __init__(
        self,
        cluster: str,
        *,
        rules: DemandRules,
        node_rules: NodeRules,
        state: Callable[[], State],
        decide: Decide,
        make_known: MakeKnown,
    ) -> None:
        """`cluster` is the cluster's name in the ledger."""
        self._cluster, self._rules, self._node_rules = cluster, rules, node_rules
        self._state, self._decide, self._make_known = state, decide, make_known
        self._new = {"node": 0, "pod": 0}
        self._known = {"node": 0, "pod": 0}
        self._problems: list[ImportProblem] = []
        self._by_hami: dict[tuple[str, str], HamiBooking] = {}

    async def take(
        self, nodes: Sequence[ApiNode], pods: Sequence[Pod], now: datetime, *, dry_run: bool
    ) -> ImportReport:
        """Import nodes, then pods; `now` has a time zone."""
        for node in nodes:
            await self._node(node, now)
        for pod in pods:
            if pod.spec.node_name and placed_pod_reader.names_cards(pod):
                await self._pod(pod)
        totals = [self._total(node, card) for node, card in self._cards()]
        return ImportReport(
            dry_run,
            self._new["node"],
            self._known["node"],
            self._new["pod"],
            self._known["pod"],
            tuple(self._problems),
            tuple(totals),
        )

    async def _node(self, node: ApiNode, now: datetime) -> None:
        reading = node_card_health.read(node, self._node_rules)
        if reading.announced.problem:
            self._problems.append(ImportProblem("node", reading.name, reading.announced.problem))
            return
        name = qualified(self._cluster, reading.name)
        known = self._state().nodes.get(name)
        wanted = node_card_health.cards_of(reading, known, now, lost=False)
        if wanted is None:
            return
        denial = await self._decide(RegisterCards(name, *wanted, ACTOR, reading.version))
        self._note("node", reading.name, denial, is_new=self._state().nodes.get(name) != known)

    async def _pod(self, pod: Pod) -> None:
        reading = placed_pod_reader.read(pod, self._cluster, self._rules)
        if reading.over:
            return
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        node = self._state().nodes.get(reading.node)
        problem = reading.problem
        if not problem and reading.parts is not None:
            problem = pods_of_other_schedulers.missing_cards(node, reading.parts)
        if problem:
            self._problems.append(ImportProblem("pod", name, problem))
            return
        if reading.parts is None or node is None:
            return
        self._count(reading.node, hami_bookings(reading.parts, initialised=reading.initialised))
        placed = self._state().placement(reading.namespace, reading.key)
        if placement_drift.is_placed(placed, reading.uid):
            self._known["pod"] += 1
            return
        denial = await self._make_known(pod)
        for command in (
            pods_of_other_schedulers.place_observed(reading, pod, node, self._rules),
            placement_stages.advance_for_observed(reading),
        ):
            if denial is None and command is not None:
                denial = await self._decide(structs.replace(command, actor=ACTOR))
        self._note("pod", name, denial, is_new=True)

    def _note(self, kind: str, name: str, denial: Denial | None, *, is_new: bool) -> None:
        if denial is not None:
            self._problems.append(ImportProblem(kind, name, sentence(denial)))
        elif is_new:
            self._new[kind] += 1
        else:
            self._known[kind] += 1

    def _count(self, node: str, bookings: dict[str, HamiBooking]) -> None:
        for uuid, more in bookings.items():
            before = self._by_hami.get((node, uuid), HamiBooking())
            self._by_hami[node, uuid] = before.plus(more)

    def _cards(self) -> list[tuple[str, Card]]:
        nodes = sorted(self._state().nodes.items())
        mine = [(name, node) for name, node in nodes if name.startswith(f"{self._cluster}/")]
        return [(name, card) for name, node in mine for card in (*node.cards, *node.lost)]

    def _total(self, node: str, card: Card) -> CardTotal:
        state = self._state()
        lines = state.card_lines.get((node, card.uuid))
        if lines is not None:
            memory, cores, slots = (state.used[line] for line in lines)
        else:
            memory = cores = slots = 0
        hami = self._by_hami.get((node, card.uuid), HamiBooking())
        return CardTotal(
            local_name(node),
            card.uuid,
            card.memory,
            memory,
            hami.memory,
            cores,
            hami.cores,
            slots,
            hami.slots,
        )

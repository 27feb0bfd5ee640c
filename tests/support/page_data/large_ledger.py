"""Large ledger: the goals of the pages are for 1,000 namespaces and 100,000 holders.

The log begins with quotas, two quotas over all namespaces, and nodes with cards. Then come the
holders that stay: roots, their pods, some of them on cards, and single pods. The first namespace
has many of them. At the end pods come and go in every namespace for a month.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec
from support.builders.decide_and_fold import record
from support.page_data.day_workloads import GPU, MEMORY
from support.page_data.working_day import DayLog

from ledger.core.decide.decider import decide
from ledger.core.model import accounts, commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share, Stage
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log.writer import denial_log

CLUSTER: Final = "berlin"
GROUP: Final = 64
DAY: Final = 86_400 * 1_000_000
MONTH: Final = 30 * DAY

_DEMAND: Final = {GPU: 1, MEMORY: 2_000}
_ON_CARDS: Final = 4
"""Pods on each card."""
_HOLDERS_OF_GROUP: Final = 16


class Size(msgspec.Struct, frozen=True):
    """How large the ledger is: `lives` are pods that came and went, after all holders."""

    namespaces: int = 1_000
    holders: int = 100_000
    crowded: int = 5_000
    """Holders of the first namespace."""
    nodes: int = 64
    lives: int = 100_000
    denials: int = 2_000


def large_ledger(size: Size, end: int) -> DayLog:
    """Return a log that ends at `end`, in µs of Unix time."""
    state, payloads = State(), list[bytes]()
    commands_in_order = _all(size)
    groups = 1 + (size.namespaces + size.holders * 5 // 2 + size.lives * 3) // GROUP
    while batch := list(islice(commands_in_order, GROUP)):
        time = end - MONTH + MONTH * min(len(payloads), groups) // groups
        payload = record(state, batch, time=time)
        assert payload is not None
        payloads.append(payload)
    return DayLog(payloads, list(_denials(state, size, end)))


def namespace(number: int) -> str:
    """Return the qualified name of a namespace."""
    return f"{CLUSTER}/team-{number:04}"


def _all(size: Size) -> Iterator[AnyCommand]:
    yield from _quotas(size)
    yield from _nodes(size)
    yield from _holders(size)
    yield from _lives(size)


def _quotas(size: Size) -> Iterator[AnyCommand]:
    keys = {f"limits.{MEMORY}": 400_000, f"requests.{GPU}": 200}
    for number in range(size.namespaces):
        factor = 60 if number == 0 else 1
        limits = {key: factor * limit + 100 * (number % 7) for key, limit in keys.items()}
        account = accounts.quota(CLUSTER, f"team-{number:04}", "gpus")
        yield commands.SetLimits(account, (namespace(number),), limits, "admin", number + 1)
    covers = tuple(map(namespace, range(size.namespaces)))
    for name, share in (("all", 1_000), ("half", 500)):
        limits = {key: share * limit for key, limit in keys.items()}
        yield commands.SetLimits(
            accounts.universe(name), covers[:: 1_000 // share], limits, "admin"
        )


def _nodes(size: Size) -> Iterator[AnyCommand]:
    for number in range(size.nodes):
        cards = tuple(
            Card(_card(number, index), index, "NVIDIA-NVIDIA A100-SXM4-80GB", 81_920, 100, 10)
            for index in range(8)
        )
        yield commands.RegisterCards(_node(number), OWN, cards, "agent", number + 1)


def _node(number: int) -> str:
    return f"{CLUSTER}/gpu-{number:04}"


def _card(node: int, index: int) -> str:
    return f"GPU-{node:04x}-{index:012x}"


def _holders(size: Size) -> Iterator[AnyCommand]:
    """Yield groups of a root with four pods and 15 single pods, until there are enough holders."""
    crowded = size.crowded // _HOLDERS_OF_GROUP
    for group in range(size.holders // _HOLDERS_OF_GROUP):
        where = namespace(0 if group < crowded else group % size.namespaces)
        root = f"deployments.apps/web-{group:05}"
        envelope = {resource: 4 * amount for resource, amount in _DEMAND.items()}
        first = 2_000 + group * 20
        yield from _seen(where, root, envelope, first, "")
        for number in range(1, 5):
            key = f"pods/web-{group:05}-{number}"
            yield from _seen(where, key, _DEMAND, first + number, root)
            yield from _placed(size, where, key, first + number, group * 4 + number - 1)
        for number in range(5, 20):
            key = f"pods/notebook-{group:05}-{number}"
            yield from _seen(where, key, _DEMAND, first + number, "")


def _seen(
    where: str, key: str, demand: dict[str, int], version: int, root: str
) -> Iterator[AnyCommand]:
    uid = f"uid-{version:032x}"
    yield commands.Reserve(where, key, uid, demand, owner="alice", actor="alice", root=root)
    yield commands.Observe(where, key, uid, version, demand, "settlement", root=root)


def _placed(size: Size, where: str, key: str, version: int, place: int) -> Iterator[AnyCommand]:
    """Yield a placement while there are free places."""
    card = place // _ON_CARDS
    node, index = divmod(card, 8)
    if node >= size.nodes:
        return
    pod = (where, key, f"uid-{version:032x}")
    parts = (Part("main", Phase.APP, (Share(_card(node, index), 2_000, 10),)),)
    yield commands.Place(*pod, _node(node), parts, actor="extender")
    yield commands.Advance(*pod, Stage.ALLOCATED, actor="settlement")


def _lives(size: Size) -> Iterator[AnyCommand]:
    for number in range(size.lives):
        where, key = namespace(number % size.namespaces), f"pods/job-{number:06x}"
        version = number + 1_000_000
        yield from _seen(where, key, _DEMAND, version, "")
        yield commands.End(where, key, f"uid-{version:032x}", version + 1, "finished", "settlement")


def _denials(state: State, size: Size, end: int) -> Iterator[bytes]:
    """Yield denials of the last day."""
    for number in range(size.denials):
        pod = (namespace(number % size.namespaces), f"pods/large-{number:06x}", f"uid-{number}")
        asked = commands.Reserve(*pod, {GPU: 20_000, MEMORY: 40_000_000}, actor="alice")
        denial = decide(state, asked)
        assert isinstance(denial, Denial)
        time = end - DAY + DAY * number // size.denials
        logged = (time, state.position, *pod, "alice", asked.demand, denial)
        yield denial_log.encode(denial_log.LoggedDenial(*logged))

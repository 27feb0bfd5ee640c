"""Two tenants: `red` and `hidden-tenant` share a quota, and both have denials and drift."""

import asyncio
import sqlite3
from pathlib import Path

from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project

from ledger.core.decide.decider import decide
from ledger.core.model import accounts, commands
from ledger.core.model.cards import Card
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log.writer import denial_log
from ledger.log.writer.denial_log import LoggedDenial

RED, HIDDEN = "c1/red", "c1/hidden-tenant"
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
SHARED = accounts.universe("all")
OWN = accounts.quota("c1", "red", "main")
THEIRS = accounts.quota("c1", "hidden-tenant", "theirs")
SECRETS = ("hidden-tenant", "hidden-pod", "hidden-user", "theirs")
"""Names that only readers of the namespace `hidden-tenant` may see."""


def _reserve(namespace: str, pod: str, cards: int, root: str = "") -> commands.Reserve:
    demand = {GPU: cards, MEMORY: 1_000 * cards}
    actor = "alice" if namespace == RED else "hidden-user"
    return commands.Reserve(namespace, f"pods/{pod}", pod, demand, actor=actor, root=root)


def _steps() -> list[list[AnyCommand]]:
    """Return the commands of each record; the records 5 and 6 have events of both tenants."""
    both = {f"limits.{MEMORY}": 16_000, f"requests.{GPU}": 16}
    cards = tuple(Card(f"u{n}", n, "A100", 8_000, 100, 4) for n in range(3))
    web = ("c1/red", "deployments.apps/web", "web")
    return [
        [commands.SetLimits(OWN, (RED,), {f"requests.{GPU}": 12}, "admin")],
        [commands.SetLimits(THEIRS, (HIDDEN,), both, "hidden-user")],
        [commands.SetLimits(SHARED, (RED, HIDDEN), both, "admin")],
        [commands.RegisterCards("c1/n1", "hami", cards)],
        [_reserve(RED, "p1", 2), _reserve(HIDDEN, "hidden-pod", 6)],
        [
            commands.Observe(RED, "pods/p1", "p1", 1, {GPU: 2, MEMORY: 2_000}, "watch"),
            commands.Observe(HIDDEN, "pods/hidden-pod-2", "h2", 2, {GPU: 1}, "hidden-user"),
        ],
        [commands.Observe(*web, 3, {GPU: 3}, "watch"), _reserve(RED, "w1", 1, web[1])],
        [_reserve(HIDDEN, "hidden-pod-3", 1)],
        [commands.SetLimits(OWN, (RED,), {f"requests.{GPU}": 8}, "admin")],
        [commands.End(RED, "pods/p1", "p1", 9, "deleted", "watch")],
    ]


LAST = 10
"""The position of the last record."""


def two_tenants(path: Path) -> Path:
    """Project the ledger, with a denial of each tenant for lack of room in the shared quota."""
    state, payloads = State(), list[bytes]()
    for number, step in enumerate(_steps()):
        payload = record(state, step, time=START + number * SECOND)
        assert payload is not None
        payloads.append(payload)
    asyncio.run(project(path, log_of(payloads)))
    refused = [_denied(state, _reserve(RED, "big", 7)), _denied(state, _reserve(HIDDEN, "vast", 9))]
    with sqlite3.connect(path) as connection:
        for position, denied in enumerate(refused, 1):
            row = (position, denied.time, *denied.namespace.split("/"), denial_log.encode(denied))
            connection.execute("INSERT INTO denials VALUES (?, ?, ?, ?, ?)", row)
    connection.close()
    return path


def _denied(state: State, command: commands.Reserve) -> LoggedDenial:
    decision = decide(state, command)
    assert isinstance(decision, Denial)
    return LoggedDenial(
        namespace=command.namespace,
        key=command.key,
        uid=command.uid,
        actor=command.actor,
        demand=command.demand,
        denial=decision,
        position=state.position,
        time=state.time,
    )

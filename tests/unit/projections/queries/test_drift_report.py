"""Drift: the events that are corrections, and their rows."""

from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project, viewing

from ledger.core.model import commands
from ledger.core.model.commands import AnyCommand
from ledger.core.model.devices import Device
from ledger.core.model.state import State
from ledger.log import records
from projections.queries.drift_report import (
    Correction,
    ExceededLine,
    drift,
)
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.queries.unrecognized_users import UnrecognizedUser, unrecognized_users
from projections.tables.drift_table import RECOUNT
from webhook.context.namespace_labels import Namespaces
from webhook.context.namespace_policies import NamespacePolicy, Policies
from webhook.settlement.charge_settlement_session import RECOUNTED
from webhook.settlement.drift_counter import DriftCounter

GPU = "nvidia.com/gpu"
ACCOUNT = "quota/c1/red/main"


def where(name: str, namespace: str = "c1/red") -> tuple[str, str, str]:
    return namespace, f"pods/{name}", name


CLAIM = ("c1/green", "resourceclaims.resource.k8s.io/shared", "claim")
DEVICE = Device("shared", "gpu", "gpu.example.com", "n1", "gpu-0")

STEPS: list[list[AnyCommand]] = [
    [commands.SetLimits(ACCOUNT, ("c1/red",), {f"limits.{GPU}": 3}, "admin")],
    [commands.Reserve(*where("asked"), {GPU: 1}), commands.Reserve(*where("late"), {GPU: 1})],
    [commands.Observe(*where("asked"), 5, {GPU: 1}, "settlement")],
    [commands.Observe(*where("asked"), 6, {GPU: 1}, "settlement", traits=("app=a",))],
    [commands.Observe(*where("bypassed"), 7, {GPU: 3}, RECOUNT)],
    [commands.Refute(*where("late"), 0, actor="settlement")],
    [commands.Observe(*where("late"), 8, {GPU: 1}, "settlement")],
    [commands.Observe(*where("other", "c1/blue"), 9, {GPU: 1}, "settlement")],
    [commands.End(*where("asked"), 10, "deleted", RECOUNT)],
    [commands.End(*where("late"), 11, "deleted", "settlement")],
    [commands.End(*where("other", "c1/blue"), 12, "moved", RECOUNT)],
    [commands.Reserve(*CLAIM, {GPU: 2})],
    [commands.Observe(*CLAIM, 13, {GPU: 1}, "settlement", devices=(DEVICE,))],
    [commands.Observe(*CLAIM, 14, {GPU: 2}, "settlement", devices=())],
    [commands.Observe(*CLAIM, 15, {GPU: 3}, "settlement", devices=(DEVICE,))],
    [commands.Observe(*where("admin", "c1/green"), 16, {}, "settlement", devices=(DEVICE,))],
]
"""The last steps settle a resource claim, return it to its bound, and give it more than that."""


def payloads() -> list[bytes]:
    """Return the records that the steps lead to."""
    state = State()
    encoded = [record(state, step, time=START + n * SECOND) for n, step in enumerate(STEPS)]
    assert all(encoded)
    return [payload for payload in encoded if payload is not None]


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(payloads()))
    return path


async def told(path: Path, scope: QueryScope = EVERYTHING, since: int = 0) -> list[Correction]:
    async with viewing(path) as view:
        rows, more = await drift(view, scope, limit=100, since=since)
    assert more is None
    return rows


async def test_only_corrections_are_listed_newest_first(path: Path) -> None:
    assert [
        (correction.position, correction.key, correction.cause) for correction in await told(path)
    ] == [
        (15, CLAIM[1], "allocated"),
        (9, "pods/asked", "deleted"),
        (8, "pods/other", "unreserved"),
        (7, "pods/late", "late"),
        (5, "pods/bypassed", "unreserved"),
    ]


async def test_correction_has_the_lines_over_their_limits(path: Path) -> None:
    _, released, elsewhere, late, bypassed = await told(path)
    assert bypassed.over == [ExceededLine(ACCOUNT, f"limits.{GPU}", 5, 3)]
    assert late.over == [ExceededLine(ACCOUNT, f"limits.{GPU}", 5, 3)]
    assert elsewhere.over == []
    assert released.over == [], "what frees brings nothing over a limit, though it is over"
    assert (bypassed.type, bypassed.amounts, bypassed.uid) == ("Observed", {GPU: 3}, "bypassed")
    assert (released.type, released.amounts) == ("Released", {GPU: 1})


async def test_corrections_of_a_namespace_and_since_a_time(path: Path) -> None:
    assert [correction.position for correction in await told(path, QueryScope("blue"))] == [8]
    assert [correction.position for correction in await told(path, since=START + 7 * SECOND)] == [
        15,
        9,
        8,
    ]


async def test_small_pages_together_are_the_whole(path: Path) -> None:
    pages: list[Correction] = []
    before = None
    async with viewing(path) as view:
        for _ in range(9):
            rows, before = await drift(view, EVERYTHING, limit=1, before=before)
            pages += rows
            if before is None:
                break
    assert pages == await told(path)


async def test_metric_counts_the_listed_corrections(path: Path) -> None:
    state, counted = State(), list[tuple[int | str, ...]]()
    policies = Policies(NamespacePolicy(), Namespaces(None))
    for position, payload in enumerate(payloads(), start=1):

        def count(name: str, *labels: str, at: int = position) -> None:
            counted.append((at, *labels))

        drift_counter = DriftCounter(policies, count)
        for item in records.fold(state, position, payload).items:
            drift_counter.follow(item.event)
    assert counted == [
        (correction.position, correction.cause) for correction in reversed(await told(path))
    ]


def test_the_actor_of_a_comparison_is_the_one_that_settlement_names() -> None:
    assert RECOUNT == RECOUNTED


async def test_users_of_objects_charged_beside_their_owner_are_listed(tmp_path: Path) -> None:
    state, path = State(), tmp_path / "barred.sqlite"
    made = [("a", "red", "ops"), ("b", "red", "ops"), ("c", "blue", "ada"), ("d", "red", "")]
    step: list[AnyCommand] = [
        commands.Reserve(
            *where(name, f"c1/{space}"), {GPU: 1}, actor=actor, root=commands.BARRED * bool(actor)
        )
        for name, space, actor in made
    ]
    payload = record(state, step, time=START)
    assert payload is not None
    await project(path, log_of([payload]))
    async with viewing(path) as view:
        assert await unrecognized_users(view, EVERYTHING) == [
            UnrecognizedUser("ops", 2),
            UnrecognizedUser("ada", 1),
        ]
        assert await unrecognized_users(view, QueryScope("blue", "c1")) == [
            UnrecognizedUser("ada", 1)
        ]

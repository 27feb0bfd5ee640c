"""Root holders: compared with the state at every position, in pages of every size."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.harness.projection_harness import log_of, project, random_payloads, viewing

from ledger.core.evolve.envelope_charges import drawn_from
from ledger.core.model.amounts import Amounts, largest
from ledger.core.model.state import Namespace, State
from ledger.log import records
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants import charge_pages
from projections.queries.tenants.namespace_search import namespace_named
from projections.queries.tenants.root_holders import RootHolder, pods_of_root, root_holders
from projections.store.readers import ProjectionView

SEED = 11
COMMANDS = 240

Expected = dict[tuple[str, str], tuple[Amounts, int, list[str]]]
"""Charge, pods and shares of devices by kind and key."""


def expected_of(space: Namespace) -> Expected:
    """Return the holders as the rules of charging define them."""
    rows: Expected = {}
    for key, entry in space.entries.items():
        root = drawn_from(entry)
        stored = entry.committed
        shares = [device.share for device in stored.devices] if stored is not None else []
        if key.startswith("pods/"):
            if not root:
                rows["pod", key] = entry.charge, 0, shares
        elif key.startswith("resourceclaims.resource.k8s.io/"):
            rows["resource-claim", key] = entry.charge, 0, shares
        elif root not in space.entries:
            draw = space.draws.get(key)
            charge = entry.charge if draw is None else largest(entry.charge, draw.charge)
            rows["root", key] = charge, len(space.members.get(key, ())), []
    for root, draw in space.draws.items():
        if root not in space.entries:
            rows["unknown-root", root] = draw.charge, len(space.members[root]), []
    return rows


def read_of(holders: list[RootHolder]) -> Expected:
    return {
        (str(row.kind), row.key): (row.amounts, row.pods, [held.share for held in row.devices])
        for row in holders
    }


async def pages(
    view: ProjectionView, position: int, namespace: NumberedNamespace, limit: int
) -> list[RootHolder]:
    listed: list[RootHolder] = []
    after = ""
    while True:
        rows, after = await root_holders(view, position, namespace, limit=limit, after=after)
        assert len(rows) <= limit
        listed += rows
        if not after:
            return listed


@pytest.fixture
async def view(tmp_path: Path) -> AsyncIterator[ProjectionView]:
    await project(tmp_path / "p.sqlite", log_of(random_payloads(SEED, COMMANDS)))
    async with viewing(tmp_path / "p.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_holders_are_those_of_the_state_at_every_position(
    view: ProjectionView, limit: int
) -> None:
    state, kinds = State(), set[str]()
    for position, payload in enumerate(random_payloads(SEED, COMMANDS), 1):
        records.fold(state, position, payload)
        for name, space in state.namespaces.items():
            numbered = await namespace_named(view, position, *name.split("/"))
            rows = [row for place in numbered for row in await pages(view, position, place, limit)]
            assert read_of(rows) == expected_of(space)
            assert len(read_of(rows)) == len(rows)
            kinds |= {row.kind for row in rows}
    assert kinds == {"root", "unknown-root", "resource-claim", "pod"}


async def test_pods_of_a_root_are_those_of_the_state(view: ProjectionView) -> None:
    state, seen = State(), 0
    for position, payload in enumerate(random_payloads(SEED, COMMANDS), 1):
        records.fold(state, position, payload)
        for name, space in state.namespaces.items():
            for root, members in space.members.items():
                for numbered in await namespace_named(view, position, *name.split("/")):
                    rows, _ = await pods_of_root(view, position, numbered, root, limit=100)
                    assert set(members) <= {row.key for row in rows}
                    seen += len(members)
    assert seen


async def test_a_page_examines_few_rows_and_continues(
    view: ProjectionView, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = view.head.position
    (namespace,) = await namespace_named(view, head, "c1", "red")
    whole = await pages(view, head, namespace, 100)
    monkeypatch.setattr(charge_pages, "SCANNED_MAX", 2)
    rows, after = await root_holders(view, head, namespace, limit=100)
    assert len(rows) < len(whole)
    assert after
    assert await pages(view, head, namespace, 100) == whole
    assert await pages(view, head - 20, namespace, 100) != []


async def test_a_place_that_is_none_is_refused(view: ProjectionView) -> None:
    (namespace,) = await namespace_named(view, view.head.position, "c1", "red")
    for text in ("pods/p1", "nothing:pods/p1"):
        with pytest.raises(ValueError, match="is not"):
            await root_holders(view, view.head.position, namespace, limit=9, after=text)

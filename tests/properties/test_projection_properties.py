"""The projection says what the core says, at every position, however it came to be."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.projecting import digest_of, log_of, project, random_payloads, viewing

from ledger.core import accounts, snapshots
from ledger.core.events import OBJECT
from ledger.core.state import State
from ledger.log import records
from ledger.log.port import Snapshot
from projections.queries.holding import holders, holds
from projections.queries.scopes import EVERYTHING
from projections.queries.usage import usage

SEEDS = st.integers(0, 2**32)
COMMANDS = 150


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def usage_of(state: State) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return limit, used and committed of every open line, added up from the entries."""
    found = {}
    for name, account in state.accounts.items():
        for key, line in account.lines.items():
            committed = sum(
                entry.committed.demand.get(accounts.resource_of(key), 0)
                for namespace in account.covers
                for entry in state.namespaces[namespace].entries.values()
                if entry.committed is not None
            )
            found[name, key] = (state.limit[line], state.used[line], committed)
    return found


def charges_of(state: State) -> dict[str, dict[str, int]]:
    return {
        f"{namespace}/{key}": entry.charge
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
    }


def holds_of(state: State) -> set[tuple[str, str, int]]:
    return {
        (f"{namespace}/{key}", hold.uid, hold.base)
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for hold in entry.holds
    }


@given(SEEDS)
@settings(max_examples=15)
async def test_every_position_reads_as_the_state_was(seed: int) -> None:
    payloads = random_payloads(seed, COMMANDS)
    with scratch() as directory:
        path = directory / "ledger.sqlite"
        await project(path, log_of(payloads))
        state = State()
        async with viewing(path) as view:
            assert view.head.position == len(payloads)
            for position, payload in enumerate(payloads, 1):
                records.fold(state, position, payload)
                lines, _ = await usage(view, position, EVERYTHING, limit=100)
                assert {
                    (_account(line.cluster, line.namespace, line.quota), line.resource): (
                        line.limit,
                        line.used,
                        line.committed,
                    )
                    for line in lines
                } == usage_of(state)
                assert all(line.reserved == line.used - line.committed >= 0 for line in lines)
                keys, _ = await holders(view, position, EVERYTHING, limit=1_000)
                read = {f"{one.cluster}/{one.namespace}/{one.key}": one.amounts for one in keys}
                assert read == charges_of(state)
                open_now, _ = await holds(view, position, EVERYTHING, limit=1_000)
                assert {
                    (f"{one.cluster}/{one.namespace}/{one.key}", one.uid, one.base)
                    for one in open_now
                } == holds_of(state)
                assert all(one.base != OBJECT for one in open_now)


@given(SEEDS)
@settings(max_examples=15)
async def test_interrupted_and_rebuilt_projections_have_one_digest_at_every_position(
    seed: int,
) -> None:
    payloads = random_payloads(seed, COMMANDS)
    source = random.Random(seed)
    log = log_of(payloads)
    with scratch() as directory:
        rebuilt, interrupted = directory / "rebuilt.sqlite", directory / "interrupted.sqlite"
        await project(rebuilt, log)
        stops = sorted(source.sample(range(1, len(payloads)), 5))
        for stop in stops:
            await project(interrupted, log, stop)
            await log.save_snapshot(_snapshot(payloads, source.randint(1, stop)))
            assert await digest_of(interrupted) == await digest_of(rebuilt, stop)
        await project(interrupted, log)
        for position in (*stops, len(payloads)):
            assert await digest_of(interrupted, position) == await digest_of(rebuilt, position)


def _snapshot(payloads: list[bytes], position: int) -> Snapshot:
    state = State()
    for number, payload in enumerate(payloads[:position], 1):
        records.fold(state, number, payload)
    return Snapshot(position, snapshots.encode(state))


def _account(cluster: str, namespace: str, name: str) -> str:
    return accounts.quota(cluster, namespace, name) if namespace else accounts.universe(name)

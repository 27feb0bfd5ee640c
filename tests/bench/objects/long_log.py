"""Long log: accounts, then holds that stay open, then pods that come and go, in a store."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from support.builders.decide_and_fold import record

from ledger.core import snapshot_format
from ledger.core.model import accounts, commands
from ledger.core.model.commands import AnyCommand
from ledger.core.model.state import State
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Snapshot
from tests.bench.harness import ledgers

START: Final = 1_750_000_000_000_000
STEP: Final = 20_000
GROUP: Final = 128
ALIVE: Final = 20_000
"""Pods that exist at once while they come and go, beside the holds that stay."""
UNIVERSE: Final = 1_000
"""Namespaces below a universe account as well."""


async def prepare(store: str, quotas: int, holds: int, events: int) -> dict[str, float]:
    """Store a history with at least so many events and a snapshot shortly before its end.

    Returns positions, how many events were stored, their bytes as nats-server counts them, and
    bytes and processor seconds of the snapshot.
    """
    state, stored = State(), 0
    positions: dict[str, float] = {}
    async with (
        EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
        ledgers.log_at(server.address) as log,
    ):
        # Quotas are as large as two events, for half a group fits well into a record.
        stored += await _append(log, state, _accounts(quotas))
        positions["accounts_at"] = state.position
        stored += await _append(log, state, _holds(quotas, holds))
        positions["holds_at"] = state.position
        lives = _lives(quotas)
        stored += await _append(log, state, islice(lives, int(events * 0.98) - stored))
        started = time.process_time()
        snapshot = snapshot_format.encode(state)
        encoding = {
            "snapshot_seconds": time.process_time() - started,
            "snapshot_bytes": len(snapshot),
        }
        await log.save_snapshot(Snapshot(state.position, snapshot))
        stored += await _append(log, state, islice(lives, events - stored))
        size = (await log.extent()).size
    return {**positions, **encoding, "last": state.position, "events": stored, "log_bytes": size}


async def _append(log: JetStreamLog, state: State, made: Iterator[AnyCommand]) -> int:
    """Store commands in groups; returns how many events came of them."""
    count = 0
    while batch := list(islice(made, GROUP)):
        payload = record(state, batch, time=max(START, state.time + STEP))
        assert payload is not None
        await log.append(payload, state.position - 1)
        count += len(batch)
        await asyncio.sleep(0)
    return count


def _accounts(quotas: int) -> Iterator[AnyCommand]:
    limits = dict.fromkeys(ledgers.KEYS, ledgers.LIMIT)
    for number in range(quotas):
        name = accounts.quota(ledgers.CLUSTER, f"team-{number}", "main")
        yield commands.SetLimits(name, (ledgers.namespace(number),), limits)
    below = tuple(ledgers.namespace(number) for number in range(min(quotas, UNIVERSE)))
    yield commands.SetLimits(accounts.universe("all"), below, limits)


def _holds(quotas: int, holds: int) -> Iterator[AnyCommand]:
    for number in range(holds):
        yield _reserve(number % quotas, 0, number)


def _lives(quotas: int) -> Iterator[AnyCommand]:
    """Yield pods reserved, seen a little later and deleted when enough younger ones exist."""
    unseen: deque[commands.Reserve] = deque()
    alive: deque[commands.Reserve] = deque()
    number = 0
    while True:
        number += 1
        hold = _reserve(number * 7919 % quotas, 1, number)
        unseen.append(hold)
        yield hold
        if len(unseen) > 2 * GROUP:
            hold = unseen.popleft()
            alive.append(hold)
            yield commands.Observe(
                hold.namespace, hold.key, hold.uid, 10 * number, hold.demand, "watch"
            )
        if len(alive) > ALIVE:
            hold = alive.popleft()
            version = 10 * number + 1
            yield commands.End(hold.namespace, hold.key, hold.uid, version, "deleted", "watch")


def _reserve(team: int, kind: int, number: int) -> commands.Reserve:
    return ledgers.reserve(ledgers.namespace(team), kind, number)

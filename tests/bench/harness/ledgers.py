"""Ledgers: a writer on a log on the real nats-server, in this process."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from ledger.core.model import accounts, commands
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.jetstream.jetstream_log import JetStreamLog, JetStreamSettings
from ledger.log.jetstream.nats_connection import Access
from ledger.log.ledger_port import Ledger
from ledger.log.log_port import Log
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver

CLUSTER = "bench"
KEYS = ("limits.nvidia.com/gpumem", "requests.nvidia.com/gpu", "limits.nvidia.com/gpucores")
DEMAND = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 8_000}
LIMIT = 2**50
LOG_BYTES_MAX = 4 * 1024**3
"""Ten million events need half of it; nats-server reserves all, also in a small /dev/shm."""


@contextlib.asynccontextmanager
async def log_at(address: ServerAddress, shard: str = "main") -> AsyncIterator[JetStreamLog]:
    """Open a shard's log on a server; made when it is not there."""
    access = Access((address.url,), user=address.user, password=address.password)
    log = await JetStreamLog.connect(
        JetStreamSettings(access=access, shard=shard, max_bytes=LOG_BYTES_MAX)
    )
    try:
        await log.open(create=True)
        yield log
    finally:
        await log.close()


@contextlib.asynccontextmanager
async def writer_on(
    log: Log, observer: WriterObserver | None = None, **options: Any
) -> AsyncIterator[Writer]:
    """Run a writer on a log for the block."""
    writer = Writer(
        log,
        name=f"bench-{secrets.token_hex(4)}",
        now=lambda: time.time_ns() // 1_000,
        nonces=lambda: secrets.token_hex(8),
        observer=observer,
        **options,
    )
    await writer.open()
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def namespace(number: int) -> str:
    """Name one of the namespaces, qualified."""
    return f"{CLUSTER}/team-{number}"


async def set_limits(ledger: Ledger, namespaces: int) -> None:
    """Give every namespace a quota of three resources, and all of them together a universe."""
    for first in range(0, namespaces, 500):
        numbers = range(first, min(first + 500, namespaces))
        await asyncio.gather(*(ledger.submit(_quota(number)) for number in numbers))
    names = tuple(namespace(number) for number in range(namespaces))
    everything = dict.fromkeys(KEYS, LIMIT)
    await ledger.submit(commands.SetLimits(accounts.universe("all"), names, everything))


def reserve(where: str, client: int, number: int) -> commands.Reserve:
    """Return the reservation of a new pod."""
    name = f"{client:04x}-{number:08x}"
    return commands.Reserve(
        where,
        f"pods/worker-{name}",
        f"5e1f7a2c-0000-4000-{name}",
        DEMAND,
        owner=f"ReplicaSet/workers-{client}",
        owner_holds_max=100,
        actor="system:serviceaccount:kube-system:replicaset-controller",
    )


def release(hold: commands.Reserve) -> commands.Refute:
    """Return the command that ends a reservation."""
    return commands.Refute(hold.namespace, hold.key, hold.uid, hold.base)


def _quota(number: int) -> commands.SetLimits:
    name = accounts.quota(CLUSTER, f"team-{number}", "main")
    return commands.SetLimits(name, (namespace(number),), dict.fromkeys(KEYS, LIMIT))

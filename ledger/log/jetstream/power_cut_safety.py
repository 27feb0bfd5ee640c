"""Power cut safety: the conditions under which an acknowledged record survives a power cut.

With NATS' defaults every write acknowledged in the last two minutes is lost when the power goes,
on one server and on three. So the ledger checks the servers, and returns one sentence for each
missing condition.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from ledger.log.jetstream import server_monitoring
from ledger.log.jetstream.stream_configuration import StreamConfig
from ledger.log.log_port import Durability

SERVER_VERSION_MIN: Final = (2, 15)
"""Older servers do not fence proposals by leadership term."""

REPLICAS_PRODUCTION: Final = 3
"""Fewer replicas do not survive the loss of one disk."""


async def inspect(
    version: tuple[int, int, int],
    config: StreamConfig,
    monitor_urls: Sequence[str],
    *,
    production: bool,
    deadline: float,
) -> Durability:
    """Judge a server's version, the log's configuration and each server's syncing."""
    answers = await asyncio.gather(
        *(server_monitoring.sync_always(url, deadline) for url in monitor_urls)
    )
    synced = _agreed(answers)
    problems = [
        *_version_problems(version),
        *_sync_problems(synced, monitor_urls, answers),
        *_replica_problems(config, production=production),
    ]
    if config.persist_mode == "async":
        problems.append(
            f"stream {config.name} acknowledges before it writes (persist_mode async):"
            " set persist_mode default"
        )
    shown = ".".join(str(part) for part in version)
    return Durability(shown, synced, config.num_replicas, tuple(problems))


def _agreed(answers: Sequence[bool | None]) -> bool | None:
    """Return the answer on which all servers agree; None without servers, or without an answer."""
    if False in answers:
        return False
    if not answers or None in answers:
        return None
    return True


def _version_problems(version: tuple[int, int, int]) -> list[str]:
    if version[:2] >= SERVER_VERSION_MIN:
        return []
    shown = ".".join(str(part) for part in version)
    wanted = ".".join(str(part) for part in SERVER_VERSION_MIN)
    return [f"nats-server is {shown}, {wanted} or newer is needed: upgrade it"]


def _sync_problems(
    synced: bool | None, urls: Sequence[str], answers: Sequence[bool | None]
) -> list[str]:
    if synced:
        return []
    if not urls:
        return [
            "it is not known whether the servers sync every write:"
            " give their monitoring addresses (http://HOST:8222)"
        ]
    if synced is None:
        silent = ", ".join(url for url, answer in zip(urls, answers, strict=True) if answer is None)
        return [
            f"it is not known whether every write is synced: {silent} does not answer"
            " /jsz?config=true; check the monitoring address"
        ]
    lazy = ", ".join(url for url, answer in zip(urls, answers, strict=True) if answer is False)
    return [
        f"acknowledged writes of the last minutes are lost in a power cut: {lazy} does not sync"
        " each one; set `sync_interval: always` in the server's jetstream block"
    ]


def _replica_problems(config: StreamConfig, *, production: bool) -> list[str]:
    if not production or config.num_replicas >= REPLICAS_PRODUCTION:
        return []
    return [
        f"stream {config.name} has {config.num_replicas} replica(s), production needs"
        f" {REPLICAS_PRODUCTION}: run three servers and set the number of replicas"
    ]

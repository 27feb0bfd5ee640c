"""The ledger core on the real server: commands per second, and how much of it the store takes.

Clients in the writer's process reserve and release in turn, each waiting for its durable answer.
The baseline stores records of the same number and size, one in flight as in the writer, decided by
decision.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.ledger_port import Accepted
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime import gc_tuning
from tests.bench.harness import ledgers
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result

NAMESPACES = 1_000


class Records(WriterObserver):
    """Adds up the records that were stored, and keeps the longest time a group took to decide."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.records = self.commands = self.bytes = 0
        self.longest = 0.0

    def batch_stored(self, commands: int, record_bytes: int, seconds: float) -> None:
        self.records += 1
        self.commands += commands
        self.bytes += record_bytes

    def blocked(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)


def run(quick: bool) -> list[Result]:
    """Measure the core."""
    rounds = 1 if quick else 3
    numbers = median(
        [fresh(measure, clients=2_000, pairs=15 if quick else 60) for _ in range(rounds)]
    )
    held = fresh(measure, clients=2_000, pairs=15, by_processor=True)
    processor = 1e6 / numbers["commands_per_second"] * numbers["processor_share"]
    return [
        result(
            "ledger core",
            numbers["commands_per_second"],
            "commands/s",
            baseline=numbers["stored_per_second"],
            goal=Goal(80_000, "least"),
            note=f"{numbers['commands_per_record']:.0f} commands in a record; the process computes"
            f" {numbers['processor_share']:.0%} of the time;"
            " baseline: the same records stored without deciding",
        ),
        result(
            "ledger core, processor time of a command", processor, "µs", goal=Goal(12.5, "most")
        ),
        result(
            "longest block of the writer",
            held["longest_block"] * 1e3,
            "ms of processor time",
            goal=Goal(5, "most"),
        ),
    ]


async def measure(clients: int, pairs: int, by_processor: bool = False) -> dict[str, float]:
    """Let clients reserve and release; then store the same amount of bytes in as many records."""
    options = {"stopwatch": time.thread_time} if by_processor else {}
    seen = Records()
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedServer(EmbeddedSettings(store=Path(directory))) as server:
            async with (
                ledgers.log_at(server.address) as log,
                ledgers.writer_on(log, seen, **options) as writer,
            ):
                await ledgers.set_limits(writer, NAMESPACES)
                gc_tuning.freeze_existing()
                seen.forget()
                seconds, share = await _load(writer, clients, pairs)
            stored = await _store(server.address, seen)
    return {
        "commands_per_second": 2 * clients * pairs / seconds,
        "stored_per_second": seen.commands / stored,
        "commands_per_record": seen.commands / seen.records,
        "record_bytes": seen.bytes / seen.records,
        "processor_share": share,
        "longest_block": seen.longest,
    }


async def _load(writer: Writer, clients: int, pairs: int) -> tuple[float, float]:
    """Return the seconds it took and the share of them that this process computed."""
    started, computed = time.perf_counter(), time.process_time()
    await asyncio.gather(*(_client(writer, number, pairs) for number in range(clients)))
    seconds = time.perf_counter() - started
    return seconds, (time.process_time() - computed) / seconds


async def _store(address: ServerAddress, seen: Records) -> float:
    """Return the seconds that as many records of their mean size take without deciding."""
    payload = os.urandom(seen.bytes // seen.records)
    async with ledgers.log_at(address, "raw") as raw:
        started = time.perf_counter()
        for position in range(seen.records):
            await raw.append(payload, position)
        return time.perf_counter() - started


async def _client(writer: Writer, client: int, pairs: int) -> None:
    where = ledgers.namespace(client % NAMESPACES)
    for number in range(pairs):
        hold = ledgers.reserve(where, client, number)
        answer = await writer.submit(hold)
        assert isinstance(answer, Accepted), answer
        await writer.submit(ledgers.release(hold))

"""Open log: the log of a command, with or without a running service, and a writer on it.

With `nats` set, the log is on those servers. Otherwise it is the embedded one of the store
directory: a running service writes the address of its server to a file there; without a service
the command starts the server until it ends. The lock on the store decides between the two, so there
are never two servers on one store.

Any process may write: a writer decides on the state at the end of the log, and the log refuses a
record if another writer appended first. So a command is safe beside a running service.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit, denied_error
from gpuledger.cli.progress import bar
from gpuledger.storage.seen_log_ends import witnesses
from gpuledger.wiring import log_from_settings, store_layout
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log.embedded import server_files
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress, ServerFiles
from ledger.log.embedded.store_lock import StoreBusy
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.stream_configuration import ConfigurationDrift
from ledger.log.ledger_port import Accepted, Ledger
from ledger.log.log_port import Lost, Unreachable
from ledger.log.recovery.log_end_check import HeadFile, LogHead
from ledger.log.writer.writer import Writer
from ledger.runtime import log_setup
from ledger.runtime.settings.settings import Settings

WAIT_SECONDS: Final = 15.0
"""How long another process may hold the store before its server can be reached."""

RETRY_SECONDS: Final = 0.1


class OpenLog(msgspec.Struct, frozen=True):
    """An open log. `alone`: no other process can write it while this command has it.

    `drift` is the difference of its configuration from the required one, where tolerated.
    """

    log: JetStreamLog
    alone: bool
    drift: str = ""


@asynccontextmanager
async def open_log(
    settings: Settings, *, create: bool = False, as_it_is: bool = False
) -> AsyncIterator[OpenLog]:
    """Find the log and keep it open for the block; `create` makes one in a store that had none.

    `as_it_is` also opens a log with a wrong configuration, for an audit. Raises CommandError when
    there is none, and what opening a log raises.
    """
    log_setup.configure("error", "console")
    check_store(settings)
    finding = _given(settings) if settings.nats else _embedded(settings, create)
    drift = ""
    async with finding as opened:
        try:
            await _open_streams(opened.log, settings, create)
        except ConfigurationDrift as error:
            if not as_it_is:
                raise
            drift = str(error)
        yield msgspec.structs.replace(opened, drift=drift)


def check_store(settings: Settings) -> None:
    """Raise CommandError where the store is not a directory."""
    store = Path(settings.store_dir)
    if store.exists() and not store.is_dir():
        raise CommandError(
            Exit.USAGE,
            f"store_dir = {store}: is a file; name a directory with --store-dir"
            " (GPULEDGER_STORE_DIR)",
        )


@asynccontextmanager
async def _given(settings: Settings) -> AsyncIterator[OpenLog]:
    """Connect to the servers that the settings name."""
    async with log_from_settings.log_servers(settings) as (servers, _):
        log = await log_from_settings.connect(settings, servers)
        try:
            yield OpenLog(log, alone=False)
        finally:
            await log.close()


@asynccontextmanager
async def _embedded(settings: Settings, create: bool) -> AsyncIterator[OpenLog]:
    """Connect to the running server of the store, or start one for the block."""
    store = Path(settings.store_dir)
    if not ServerFiles(store).streams.exists():
        await _must_be_new(settings, create)
    server = EmbeddedServer(EmbeddedSettings(store=store, lock_seconds=0))
    log, alone = await _running_or_started(settings, store, server)
    try:
        yield OpenLog(log, alone)
    finally:
        await log.close()
        if alone:
            await server.stop()


async def _must_be_new(settings: Settings, create: bool) -> None:
    """Refuse a store without a log, unless a new log may be made. Raises CommandError, Lost."""
    seen = await witnesses(settings)
    if seen:
        raise Lost(
            f"{settings.store_dir} has no log, but {seen[0].source} has seen position"
            f" {seen[0].position} of one: restore it from a backup to a new store, or name its"
            " servers with --nats"
        )
    if not create:
        raise CommandError(Exit.NOT_FOUND, _nothing_in(settings))


async def _running_or_started(
    settings: Settings, store: Path, server: EmbeddedServer
) -> tuple[JetStreamLog, bool]:
    """Return a connection to the store's server and whether it was started here.

    Raises StoreBusy when a process that cannot be reached holds the store for too long.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + WAIT_SECONDS
    while True:
        try:
            address = await server.start()
        except StoreBusy:
            log = await _running(settings, store)
            if log is not None:
                return log, False
            if clock() > until:
                raise
            await asyncio.sleep(RETRY_SECONDS)
            continue
        # This server ends with the command: no other process may start to rely on it.
        ServerFiles(store).address.unlink(missing_ok=True)
        try:
            return await log_from_settings.connect(settings, _servers_at(address)), True
        except BaseException:
            await server.stop()
            raise


async def _running(settings: Settings, store: Path) -> JetStreamLog | None:
    """Connect to the running server of a store; None if there is none, or if it has ended."""
    address = _address(store)
    if address is None:
        return None
    try:
        log = await log_from_settings.connect(settings, _servers_at(address))
    except Unreachable:
        return None
    if _address(store) != address:
        await log.close()
        return None
    return log


def _address(store: Path) -> ServerAddress | None:
    try:
        return server_files.read_address(store)
    except ValueError as error:
        raise CommandError(Exit.FAILED, str(error)) from error


def _servers_at(address: ServerAddress) -> log_from_settings.LogServers:
    return log_from_settings.LogServers(
        (address.url,), address.user, address.password, (address.monitor_url,)
    )


async def _open_streams(log: JetStreamLog, settings: Settings, create: bool) -> None:
    """Open the streams. A log that this store has never seen is not found; a seen one is lost."""
    known = await witnesses(settings)
    if not known and not create:
        await _must_exist(log, settings)
    if known:
        await _must_be_there(log, settings, known[0])
    await log.open(create=create and not known)


async def _must_be_there(log: JetStreamLog, settings: Settings, seen: LogHead) -> None:
    """Raise Lost for a missing log that this store has seen, with both remedies."""
    try:
        await log.extent()
    except Lost as error:
        raise Lost(
            f"there is no log {settings.shard} in {_place(settings)}, but {seen.source} has seen"
            f" position {seen.position} of one: check the name (--shard or GPULEDGER_SHARD); if"
            " the log is lost, restore it from a backup to a new store"
        ) from error


async def _must_exist(log: JetStreamLog, settings: Settings) -> None:
    try:
        await log.extent()
    except Lost as error:
        raise CommandError(Exit.NOT_FOUND, _nothing_in(settings)) from error


def _place(settings: Settings) -> str:
    return ", ".join(settings.nats) if settings.nats else settings.store_dir


def _nothing_in(settings: Settings) -> str:
    return (
        f"there is no log {settings.shard} in {_place(settings)}: start `gpuledger serve` there, or"
        " name another place with --store-dir (GPULEDGER_STORE_DIR) or --nats (GPULEDGER_NATS)"
    )


ACTOR = "command line"
"""The actor in the events of commands."""


@asynccontextmanager
async def writer_on(
    settings: Settings, opened: OpenLog, *, serves: bool = True
) -> AsyncIterator[Writer]:
    """Open a writer at the end of a log and run it for the block, if it is to serve commands.

    Raises Lost and NewerSchema.
    """
    writer = Writer(
        opened.log,
        name=log_from_settings.replica_name(),
        now=lambda: time.time_ns() // 1_000,
        nonces=lambda: uuid.uuid4().hex,
        settings=log_from_settings.writer_settings(settings),
    )
    with bar("reading the log") as progress:
        await writer.open(await witnesses(settings), progress)
    running = [asyncio.create_task(writer.run())] if serves else []
    try:
        yield writer
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    if opened.alone and writer.head.position:
        await HeadFile(Path(settings.store_dir) / store_layout.HEAD).note(writer.head)


async def submit(ledger: Ledger, command: AnyCommand, *, dry_run: bool = False) -> Accepted:
    """Submit a command. Raises CommandError with the sentence of a denial."""
    answer = await ledger.submit(command, dry_run=dry_run)
    if isinstance(answer, Denial):
        raise denied_error(answer)
    return answer

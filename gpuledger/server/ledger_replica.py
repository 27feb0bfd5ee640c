"""Ledger replica: opens the log, and runs the writer, the leases and the follower.

It is a `Ledger` from the start of the process. While the log is not open or cannot be reached, it
denies commands as unavailable. A lost log stops the ledger for good; the service stays up and
reports it.

A command passes through several ledgers. Each is a `Ledger` that adds one property to the next:

1. One of two, depending on the caller: `RegisteredClusterLedger` for admission and the extender,
   `ReadYourWritesLedger` for settlement. The second is in front of forwarding, because the answer
   of another replica is ahead of the state here.
2. `LedgerReplica`. There is one for the whole life of the process.
3. `ForwardingLedger` (`ledger/log/peers/forwarding.py`) sends a command to the preferred writer. If
   that writer does not answer, it passes the command on. The replica makes it when the log is open.
4. `Writer` (`ledger/log/writer/writer.py`) decides and appends.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import structlog

from gpuledger.server.follower.follower_process import FollowerInstructions, FollowerMessage
from gpuledger.server.follower.follower_supervisor import FollowerSupervisor
from gpuledger.storage.seen_log_ends import witnesses
from gpuledger.wiring import log_from_settings, store_layout
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import system_denials
from ledger.log.jetstream.jetstream_domain import Captured
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.missing_records import MissingStream
from ledger.log.jetstream.stream_configuration import ConfigurationDrift
from ledger.log.ledger_port import Accepted, Ledger, answered
from ledger.log.log_port import Durability, LogError, Lost
from ledger.log.peers.active_replica_questions import ActiveReplicaQuestions
from ledger.log.peers.append_notices import AppendNotifier
from ledger.log.peers.forwarding import CommandServer, ForwardingLedger
from ledger.log.peers.hint_broadcast import Hints
from ledger.log.peers.lease import Lease
from ledger.log.peers.owner_beats import OwnerBeats
from ledger.log.peers.schema_survey import SchemaAnnouncer
from ledger.log.records import NewerSchema, Record
from ledger.log.recovery.log_end_check import NOTE_SECONDS, HeadFile
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime import gc_tuning
from ledger.runtime.settings.settings import Settings

CONNECT_AGAIN_SECONDS: Final = 0.5
DURABILITY_SECONDS: Final = 60.0
"""Interval of checking the durability of acknowledgements."""

_FATAL: Final = (Lost, NewerSchema, ConfigurationDrift, Captured)
_log: Final = structlog.get_logger("gpuledger")
T = TypeVar("T")


class SnapshotMark(NamedTuple):
    """The newest snapshot of this replica: its position, and its Unix time."""

    position: int
    taken: float


class ScrubMark(NamedTuple):
    """The last complete scrub since the start: the position up to which the log is intact, and the
    Unix time of its end. Both are 0 before.
    """

    position: int
    ended: float


class LedgerReplica:
    """The ledger of one replica; `unavailable_reason()` returns why it cannot decide."""

    def __init__(
        self,
        settings: Settings,
        servers: log_from_settings.LogServers,
        *,
        observer: WriterObserver,
        settles: bool = True,
    ) -> None:
        """Prepare the replica; `run` opens the log.

        With `settles` it may become the preferred writer, and the replica that settles its cluster
        and keeps the registration of its webhooks. An extender becomes neither.
        """
        self.problem: str | None = "the log has not been opened yet"
        self.stopped: str | None = None
        self.durability: Durability | None = None
        self.follower: FollowerSupervisor | None = None
        self.owner: Lease | None = None
        self.settler: Lease | None = None
        self.snapshot = SnapshotMark(0, 0.0)
        self.scrub = ScrubMark(0, 0.0)
        self.opened = asyncio.Event()
        self.hints = Hints()
        self.beats = OwnerBeats(settings.cluster, settings.pod_name)
        self.questions = ActiveReplicaQuestions(settings.cluster)
        self._settings, self._servers, self._observer = settings, servers, observer
        self._settles = settles
        self._writer: Writer | None = None
        self._ledger: Ledger | None = None
        self._callbacks: list[Callable[[Record], None]] = []

    @property
    def state(self) -> State:
        """The state at the newest position this replica has applied."""
        return self._writer.state if self._writer is not None else State()

    @property
    def writer(self) -> Writer | None:
        """This replica's own writer, once the log is open."""
        return self._writer

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Call `callback` after every record that is applied from now on."""
        self._callbacks.append(callback)

    def is_active(self) -> bool:
        """Return whether this replica is the one that settles its cluster."""
        return (
            self.settler is not None and self.settler.is_owner and self.unavailable_reason() is None
        )

    def is_owner(self) -> bool:
        """Return whether this replica is the preferred writer."""
        return self.owner is not None and self.owner.is_owner

    def unavailable_reason(self) -> str | None:
        """Return the reason why the ledger cannot decide now, None if it can."""
        writer = self._writer
        if self.stopped is not None:
            return self.stopped
        if writer is None:
            return self.problem
        return writer.stopped or writer.unavailable

    def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Awaitable[Accepted | Denial]:
        """Decide a command; see `Ledger.submit`."""
        if self.stopped is not None:
            return answered(system_denials.stopped(self.stopped))
        if self._ledger is None:
            return answered(system_denials.unavailable(self.problem or "it is starting"))
        return self._ledger.submit(command, dry_run=dry_run)

    async def run(self) -> None:
        """Keep the ledger open until cancelled."""
        try:
            async with self._connected() as log:
                await self._serve(log)
        except _FATAL as error:
            self._stop(str(error))
            await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[JetStreamLog]:
        log = await self._retry(lambda: log_from_settings.connect(self._settings, self._servers))
        try:
            yield log
        finally:
            await log.close()

    async def _serve(self, log: JetStreamLog) -> None:
        writer = Writer(
            log,
            name=log_from_settings.replica_name(),
            now=lambda: time.time_ns() // 1_000,
            nonces=lambda: secrets.token_hex(8),
            settings=log_from_settings.writer_settings(self._settings),
            observer=self._observer,
        )
        await self._open(log, writer)
        for callback in self._callbacks:
            writer.subscribe(callback)
        news = AppendNotifier(log.connection, log.names, writer=writer)
        await self._retry(news.start)
        await self._retry(lambda: self.hints.start(log.connection, log.names, writer.name))
        await self._retry(lambda: self.questions.start(log.connection, log.names))
        if self._settings.pod_name:
            await self._retry(lambda: self.beats.start(log.connection, log.names))
        await self._retry(SchemaAnnouncer(log.connection, log.names, replica=writer.name).start)
        async with self._preferred(log, writer):
            self._writer, self.problem = writer, None
            self.opened.set()
            _log.info("ledger_open", position=writer.state.position)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(writer.run())
                tasks.create_task(news.run())
                tasks.create_task(self.hints.run(log.connection, log.names))
                if self._settings.pod_name:
                    tasks.create_task(self.beats.run(log.connection, log.names))
                tasks.create_task(self._note_heads(writer))
                tasks.create_task(self._watch_durability(log))
                tasks.create_task(self._follow())

    async def _open(self, log: JetStreamLog, writer: Writer) -> None:
        """Bring the writer to the log's end. Raises Lost when a witness contradicts the log."""
        known = await witnesses(self._settings)
        missing = MissingStream(replicas=self._settings.replicas)

        async def attempt() -> None:
            with missing.retried():
                await log.open(create=not known)
                await log.adjust()
                with gc_tuning.freeze_afterwards():
                    await writer.open(known)

        await self._retry(attempt)

    @contextlib.asynccontextmanager
    async def _preferred(self, log: JetStreamLog, writer: Writer) -> AsyncIterator[None]:
        """Run for preferred writer, and exchange commands with the preferred writer."""
        connection, names = log.connection, log.names
        name, replicas = writer.name, self._settings.replicas
        # A replica without reviews does not take the lease: the replica that has it may answer them
        # alone.
        owner = Lease(connection, names, writer=name, replicas=replicas, bids=self._settles)
        settler = Lease(
            connection, names, writer=name, cluster=self._settings.cluster, replicas=replicas
        )
        served = CommandServer(connection, names, writer=name, local=writer)
        await self._retry(owner.start)
        if self._settles:
            await self._retry(settler.start)
            self.settler = settler
        await self._retry(served.start)
        self.owner = owner
        self._ledger = ForwardingLedger(connection, names, preference=owner, local=writer)
        try:
            yield
        finally:
            self._ledger = None
            await served.stop()
            await settler.stop()
            await owner.stop()

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry until it succeeds; fatal errors are raised."""
        while True:
            try:
                return await attempt()
            except _FATAL:
                raise
            except (LogError, TimeoutError) as error:
                self.problem = str(error) or "the log does not answer in time"
                _log.warning("log_unreachable", reason=self.problem)
            await asyncio.sleep(CONNECT_AGAIN_SECONDS)

    async def _note_heads(self, writer: Writer) -> None:
        """Keep the head file current within `NOTE_SECONDS`; a full disk only costs the head
        witness.
        """
        file = HeadFile(Path(self._settings.store_dir) / store_layout.HEAD)
        noted = -1
        try:
            while True:
                await asyncio.sleep(NOTE_SECONDS)
                head = writer.head
                if head.position == noted:
                    continue
                try:
                    await file.note(head)
                    noted = head.position
                except OSError as error:
                    _log.error("head_not_noted", position=head.position, reason=str(error))
        finally:
            if writer.head.position != noted:
                with contextlib.suppress(OSError):
                    file.write(writer.head)

    async def _watch_durability(self, log: JetStreamLog) -> None:
        while True:
            try:
                self.durability = await log.durability()
            except LogError as error:
                _log.warning("durability_unknown", reason=str(error))
            await asyncio.sleep(DURABILITY_SECONDS)

    async def _follow(self) -> None:
        self.follower = FollowerSupervisor(
            FollowerInstructions(self._settings, self._servers), self._on_message
        )
        await self.follower.run()

    def _on_message(self, message: FollowerMessage) -> None:
        if message.lost:
            self._stop(message.lost)
        elif message.snapshot >= 0:
            self.snapshot = SnapshotMark(message.snapshot, time.time())
        else:
            self.scrub = ScrubMark(message.scrubbed, time.time())
            _log.info("log_scrubbed", position=message.scrubbed)

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        if self._writer is not None:
            self._writer.stop(reason)
        _log.error("ledger_stopped", reason=reason)

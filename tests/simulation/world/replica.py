"""A replica: the real writer, webhooks and settlement in a process that can be killed.

Only the contents of its disk survive a kill, which is the last noted head.
"""

import asyncio
import random
import sys
from collections.abc import Coroutine
from typing import Any, Final

import msgspec
from support.builders.cluster_contexts import cluster_context

from gpuledger.server.read_your_writes_ledger import ReadYourWritesLedger
from ledger.core import snapshot_format
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.requests import namespace_traits
from ledger.kube.watch import failed_objects
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.ledger_port import Accepted
from ledger.log.log_port import LogError, Lost, Snapshot
from ledger.log.memory_log import MemoryStore
from ledger.log.peers.forwarding import CommandServer, ForwardingLedger
from ledger.log.records import Record
from ledger.log.recovery.log_end_check import LogHead
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings
from simulation.actors.schedulers import Question, T
from simulation.engine.faulty_log import DistantLog, SeededFaults
from simulation.engine.messages import MessageBroker, MessageClient
from simulation.engine.processes import Process
from simulation.model.apiserver import EPOCH
from simulation.model.kinds import catalog
from simulation.model.settings import CLUSTERS, OWNER_HOLDS_MAX, RULES, SETTLE_SECONDS
from simulation.oracle.checked_extender import CheckedExtender
from simulation.oracle.checked_ledger import CheckedLedger
from simulation.oracle.checker import Checker
from simulation.script.script import Script
from simulation.world.card_cluster_client import CardClusterClient
from simulation.world.simulated_extender import SimulatedExtender
from webhook.active_replica import Settlement
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import (
    API_VERSION,
    KIND,
    AdmissionRequest,
    AdmissionResponse,
)
from webhook.app import Handler
from webhook.context.admission_settings import AdmissionSettings
from webhook.settlement.charge_settlement_session import SettlementSettings, Site

REOPEN_SECONDS: Final = 0.5
HEAD_NOTED: Final = 0.5
"""Share of records after which the head is on disk: it is noted once a second, not every time."""

NAMES: Final = StreamNames("main")
WRITER: Final = WriterSettings(refresh_seconds=2.0)
POLICY: Final = AdmissionSettings(owner_holds_max=OWNER_HOLDS_MAX)

_EPOCH_MICROSECONDS: Final = int(EPOCH.timestamp()) * 1_000_000


class Replica:
    """One replica of the cluster that it watches. `refused` is the reason of a failed start."""

    def __init__(
        self,
        number: int,
        store: MemoryStore,
        cluster: CardClusterClient,
        checker: Checker,
        source: random.Random,
        lease: "Lease",
        exchange: MessageBroker,
        plan: Script,
    ) -> None:
        self.name = f"r{number}"
        self._number = number
        self.cluster = cluster
        self.faults = SeededFaults(source)
        self.offset = 0.0
        self.head: LogHead | None = None
        self.refused = ""
        self.snapshot_wanted = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store = store
        self._checker = checker
        self._source = source
        self._lease = lease
        self._exchange = exchange
        self._plan = plan
        self._nonces = 0
        self._ready = False
        self._process = Process(self.name)
        self._build()

    def start(self) -> None:
        """Start a new process that has nothing but its disk."""
        self.refused = ""
        self.gone = asyncio.get_running_loop().create_future()
        self._process = Process(self.name)
        self._build()
        self._process.start(self._serve())

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._ready = False
        if not self.gone.done():
            self.gone.set_result(None)

    def is_up(self) -> bool:
        """Return whether the process runs, ready or not."""
        return self._process.alive and not self.gone.done()

    def serves(self) -> bool:
        """Return whether the webhooks listen."""
        return self._ready

    def stopped(self) -> str:
        """Return why the replica will not write again, empty while it would."""
        return self.refused or self.writer.stopped or ""

    def review(
        self, request: AdmissionRequest, *, mutating: bool
    ) -> "asyncio.Task[AdmissionResponse]":
        """Answer a review in this replica's process."""
        until = asyncio.get_running_loop().time() + POLICY.deadline
        handler = self._mutating if mutating else self._validating
        review = {"apiVersion": API_VERSION, "kind": KIND, "request": request}
        return self._process.start(_response(handler, msgspec.json.encode(review), until))

    def asked(self, question: Question[T]) -> "asyncio.Task[T]":
        """Answer a scheduler in this replica's process."""
        assert self._placing is not None, "only where pods are placed are there schedulers"
        extender = CheckedExtender(self._placing.extender, self.writer, self._checker)
        return self._process.start(question(extender))

    def submitted(self, command: AnyCommand) -> "asyncio.Task[Accepted | Denial]":
        """Decide a command of another process in this replica's process."""
        return self._process.start(self._ledger.submit(command))

    def now(self) -> int:
        """Return the time of this replica's wall clock, in µs of Unix time."""
        seconds = asyncio.get_running_loop().time() + self.offset
        return _EPOCH_MICROSECONDS + round(seconds * 1_000_000)

    def _build(self) -> None:
        """Put the real parts together, as the service does."""
        self._log = DistantLog(self._store, self.faults)
        self.writer = Writer(
            self._log,
            name=self.name,
            now=self.now,
            nonces=self._nonce,
            settings=WRITER,
            observer=_CheckedAnswers(self._checker),
            stopwatch=asyncio.get_running_loop().time,
        )
        self.writer.subscribe(self._applied)
        line: Any = MessageClient(self._exchange, self._process, self.faults, self._source)
        preference = _Preference(self.name, self._lease)
        self._commands = CommandServer(line, NAMES, writer=self.name, local=self.writer)
        forwarder = ForwardingLedger(line, NAMES, preference=preference, local=self.writer)
        self._ledger = ledger = CheckedLedger(forwarder, self._checker)
        where, cluster = self.cluster.name, self.cluster
        self._context = context = cluster_context(
            where, self.writer, catalog=catalog(), rules=RULES, cluster=cluster
        )
        self._mutating = MutatingWebhook(POLICY, context)
        self._validating = ValidatingWebhook(ledger, settings=POLICY, context=context)
        placing = None
        if self._plan.schedulers:
            placing = SimulatedExtender(ledger, self.writer, cluster, self.now, self._number)
        self._placing = placing
        self._settlement = Settlement(
            ReadYourWritesLedger(ledger, self.writer),
            self.writer,
            site=Site(cluster, context),
            now=self.now,
            is_active=lambda: self.name in self._lease.settlers,
            settings=self._settings(),
            count=_raise_failures,
            listeners=[placing.settlement.begin] if placing is not None else [],
        )

    def _settings(self) -> SettlementSettings:
        where = self.cluster.name
        return SettlementSettings(
            rules=RULES,
            settle_seconds=SETTLE_SECONDS,
            recount_seconds=self._plan.recount,
            cluster_traits=namespace_traits.of_cluster(where, self.cluster.region, None),
            universe_authority=where == CLUSTERS[0],
            write_quota_status=True,
        )

    async def _serve(self) -> None:
        await self._log.open(create=self.head is None)
        while True:
            try:
                await self.writer.open([self.head] if self.head is not None else [])
                break
            except Lost as error:
                self.refused = str(error)
                return
            except LogError:
                await asyncio.sleep(REOPEN_SECONDS)
        self._checker.applied(self.name, self.writer.state)
        await self._commands.start()
        self._keep_up(self.writer.run())
        assert self._context.informers is not None, "every replica has a cluster"
        self._keep_up(self._context.informers.run())
        self._keep_up(self._settlement.run())
        if self._placing is not None:
            self._keep_up(self._placing.run())
        self._ready = True

    def _keep_up(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a part of the service, which must not fail."""
        self._process.start(part).add_done_callback(self._ended)

    def _ended(self, part: "asyncio.Task[None]") -> None:
        if not part.cancelled() and part.exception() is not None:
            self._checker.fail("no part of a replica fails", repr(part.exception()))

    def _applied(self, record: Record) -> None:
        """After a record: compare, note the head now and then, and save a snapshot if wanted."""
        state = self.writer.state
        self._checker.applied(self.name, state)
        if self._source.random() < HEAD_NOTED:
            self.head = self.writer.head
        if self.snapshot_wanted:
            self.snapshot_wanted = False
            self._process.start(self._save(take_snapshot(state)))

    async def _save(self, snapshot: Snapshot) -> None:
        try:
            await self._log.save_snapshot(snapshot)
        except LogError:
            self.snapshot_wanted = True

    def _nonce(self) -> str:
        """Return a nonce that no process uses twice."""
        self._nonces += 1
        return f"{self.name}-{self._nonces:08}"


class Lease:
    """The holders of the leases to write and to settle: one replica, none, or several."""

    def __init__(self) -> None:
        self.holders: tuple[str, ...] = ()
        self.settlers: tuple[str, ...] = ()


class _Preference:
    """One replica's view of the lease."""

    def __init__(self, writer: str, lease: Lease) -> None:
        self.writer = writer
        self._lease = lease

    @property
    def owner(self) -> str | None:
        """The preferred writer, None when there is none; a holder prefers itself."""
        holders = self._lease.holders
        if self.writer in holders:
            return self.writer
        return holders[0] if holders else None


class _CheckedAnswers(WriterObserver):
    """Shows the checker every answer in the very moment in which it is given."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    def decided(self, answer: Accepted | Denial) -> None:
        """A command was answered."""
        self._checker.answered(answer)

    def contradicted(self, problem: str) -> None:
        """Every decision can be applied."""
        self._checker.fail("decisions do not contradict the state", problem)


def take_snapshot(state: State) -> Snapshot:
    """Return a snapshot of a state at the end of a record."""
    return Snapshot(state.position, snapshot_format.encode(state))


async def _response(handler: Handler, body: bytes, until: float) -> AdmissionResponse:
    return (await handler.answer(body, until)).response


def _raise_failures(name: str, *_: str) -> None:
    """Let what the service would only count end the run, because it is a defect."""
    error = sys.exception()
    if name == failed_objects.METRIC and error is not None:
        raise error

"""Forwarding: commands are sent to the preferred writer, and decided here when it does not answer.

A command is idempotent, so a command that two replicas decide takes effect once. Forwarding is for
speed only: without it every replica appends its own records, and the expected position of each
append keeps the log consistent.

Commands travel in batches that grow with load: commands that arrive while a batch is on its way
form the next batch, so that a message costs little per command.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg

from ledger.core.model.commands import (
    AnyCommand,
    CloseAccount,
    RegisterCards,
    RemoveNode,
    Resize,
    SetLimits,
    Unplace,
    Withdraw,
)
from ledger.core.model.denials import Denial, Reason
from ledger.log import system_denials
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.ledger_port import Accepted, Ledger
from ledger.log.log_port import LogError

_REPLACING: Final = (
    SetLimits,
    CloseAccount,
    RegisterCards,
    RemoveNode,
    Unplace,
    Resize,
    Withdraw,
)
"""Commands that replace or undo an earlier one: arriving late a second time, such a command would
undo a newer one, so it is never forwarded. A pod whose cards were released may have got the same
cards again, and be bound to them."""

_HELPLESS: Final = (Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED)
"""Answers of an owner that cannot decide; this replica may be able to."""

_log: Final = structlog.get_logger("ledger.log")


class ForwardingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of forwarding, times in seconds."""

    answer_seconds: float = 1.0
    """Longest time of the owner before the command is decided here."""
    avoid_seconds: float = 5.0
    """How long an owner that did not answer is not asked again."""
    in_flight_max: int = 4_096
    """Most commands on their way to the owner, and most taken from others at the same time."""
    batches_max: int = 4
    """Most batches on their way to the owner; later commands wait for the next one."""
    batch_commands_max: int = 256
    """Most commands in one batch."""
    batch_bytes_max: int = 512 * 1024
    """Size at which a batch is closed; the server takes 1 MiB."""


class Preference(Protocol):
    """The preferred writer; `lease.Lease` implements it."""

    writer: str

    @property
    def owner(self) -> str | None:
        """The preferred writer's id, None when it is unknown."""
        ...


class _Forwarded(msgspec.Struct, frozen=True, array_like=True):
    command: AnyCommand
    dry_run: bool


class _Answered(msgspec.Struct, frozen=True):
    accepted: Accepted | None = None
    denial: Denial | None = None


class _Waiting(NamedTuple):
    """A command of the next batch, and the future of its caller."""

    encoded: bytes
    answer: "asyncio.Future[_Answered | None]"


_encoder: Final = msgspec.msgpack.Encoder()
_forwarded: Final = msgspec.msgpack.Decoder(list[_Forwarded])
_answered: Final = msgspec.msgpack.Decoder(list[_Answered])


class ForwardingLedger:
    """A `Ledger` that asks the preferred writer first and the local one otherwise."""

    def __init__(
        self,
        connection: NatsConnection,
        names: StreamNames,
        *,
        preference: Preference,
        local: Ledger,
        settings: ForwardingSettings | None = None,
    ) -> None:
        """Forward over a connection; `local` is this replica's own writer."""
        self._connection = connection
        self._names = names
        self._preference = preference
        self._local = local
        self._settings = settings or ForwardingSettings()
        self._in_flight = 0
        self._waiting: deque[_Waiting] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        self._due = False
        self._avoided = ""
        self._avoided_until = 0.0

    def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Awaitable[Accepted | Denial]:
        """Decide a command at the preferred writer or here; see `Ledger.submit`."""
        owner = self._preference.owner
        if owner is not None and self._worth_asking(owner) and not isinstance(command, _REPLACING):
            encoded = _encoder.encode(_Forwarded(command, dry_run))
            # A server takes no larger message. The local writer refuses what no record can hold.
            if len(encoded) <= self._settings.batch_bytes_max:
                return self._forward(command, encoded, dry_run=dry_run)
        return self._local.submit(command, dry_run=dry_run)

    async def _forward(
        self, command: AnyCommand, encoded: bytes, *, dry_run: bool
    ) -> Accepted | Denial:
        """Ask the owner, and decide here when it cannot decide or does not answer."""
        answer = await self._ask(encoded)
        if answer is not None:
            return answer
        return await self._local.submit(command, dry_run=dry_run)

    def _worth_asking(self, owner: str) -> bool:
        if owner == self._preference.writer or self._in_flight >= self._settings.in_flight_max:
            return False
        return not self._is_avoided(owner)

    def _is_avoided(self, owner: str) -> bool:
        return owner == self._avoided and _now() < self._avoided_until

    async def _ask(self, encoded: bytes) -> Accepted | Denial | None:
        """Ask the owner; None when it cannot decide or does not answer."""
        self._in_flight += 1
        try:
            answer: asyncio.Future[_Answered | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Waiting(encoded, answer))
            self._send_soon()
            answered = await answer
        finally:
            self._in_flight -= 1
        if answered is None:
            return None
        if answered.denial is not None and answered.denial.reason in _HELPLESS:
            return None
        return answered.accepted or answered.denial

    def _send_soon(self) -> None:
        """Send after all tasks of this turn of the event loop have submitted."""
        if not self._due and len(self._batches) < self._settings.batches_max:
            self._due = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._due = False
        batch = self._next_batch()
        if not batch:
            return
        owner = self._preference.owner
        task = asyncio.create_task(self._exchange(owner, batch), name="forwarded-batch")
        self._batches.add(task)
        task.add_done_callback(self._batch_ended)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < self._settings.batch_commands_max:
            size += len(self._waiting[0].encoded)
            if batch and size > self._settings.batch_bytes_max:
                break
            waiting = self._waiting.popleft()
            if not waiting.answer.done():
                batch.append(waiting)
        return batch

    def _batch_ended(self, task: "asyncio.Task[None]") -> None:
        self._batches.discard(task)
        if self._waiting:
            self._send_soon()

    async def _exchange(self, owner: str | None, batch: list[_Waiting]) -> None:
        """Send a batch and give its answers; None to each when there is none."""
        answers: list[_Answered | None] = [None] * len(batch)
        try:
            if owner is not None and not self._is_avoided(owner):
                answers = list(await self._request(owner, batch))
        except (LogError, TimeoutError, msgspec.MsgspecError) as error:
            assert owner is not None, "only a request can fail"
            self._avoid(owner, error)
        finally:
            for waiting, answered in zip(batch, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answered)

    async def _request(self, owner: str, batch: list[_Waiting]) -> list[_Answered]:
        payload = await self._connection.request(
            self._names.commands_subject(owner),
            _encoder.encode([msgspec.Raw(waiting.encoded) for waiting in batch]),
            deadline=self._settings.answer_seconds,
        )
        answers = _answered.decode(payload)
        if len(answers) != len(batch):
            raise msgspec.ValidationError(f"{len(answers)} answers to {len(batch)} commands")
        return answers

    def _avoid(self, owner: str, error: Exception) -> None:
        if _now() >= self._avoided_until or owner != self._avoided:
            _log.warning("owner_does_not_answer", owner=owner, error=str(error))
        self._avoided, self._avoided_until = owner, _now() + self._settings.avoid_seconds


class CommandServer:
    """Takes other replicas' commands for the writer of this replica. Use `start` and `stop`."""

    def __init__(
        self,
        connection: NatsConnection,
        names: StreamNames,
        *,
        writer: str,
        local: Ledger,
        settings: ForwardingSettings | None = None,
    ) -> None:
        """Serve a writer's subject; `local` must be the writer itself, never a
        `ForwardingLedger`."""
        self._connection = connection
        self._subject = names.commands_subject(writer)
        self._local = local
        self._settings = settings or ForwardingSettings()
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken = 0

    async def start(self) -> None:
        """Begin to take commands. Raises Unreachable."""
        await self._connection.subscribe(self._subject, self._receive)

    async def stop(self) -> None:
        """Take no more commands; commands in progress are cancelled, and their senders decide
        them."""
        await self._connection.unsubscribe(self._subject)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _receive(self, message: Msg) -> None:
        task = asyncio.create_task(self._decide(message), name="forwarded-commands")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, message: Msg) -> None:
        try:
            batch = _forwarded.decode(message.data)
        except msgspec.MsgspecError as error:
            # A replica of another version; without an answer it decides for itself.
            _log.warning("forwarded_commands_unreadable", error=str(error))
            return
        if self._taken + len(batch) > self._settings.in_flight_max:
            # Not answering would cost the sender its whole deadline.
            busy = f"{self._taken} forwarded commands are being decided already"
            await _reply(message, [system_denials.overloaded(busy)] * len(batch))
            return
        self._taken += len(batch)
        try:
            answers = await asyncio.gather(
                *(
                    self._local.submit(forwarded.command, dry_run=forwarded.dry_run)
                    for forwarded in batch
                )
            )
        finally:
            self._taken -= len(batch)
        await _reply(message, answers)


async def _reply(message: Msg, answers: Sequence[Accepted | Denial]) -> None:
    payload = _encoder.encode(
        [
            _Answered(accepted=answer) if isinstance(answer, Accepted) else _Answered(denial=answer)
            for answer in answers
        ]
    )
    # A sender that cannot be reached any more decides for itself.
    with contextlib.suppress(nats.errors.Error):
        await message.respond(payload)


def _now() -> float:
    return asyncio.get_running_loop().time()

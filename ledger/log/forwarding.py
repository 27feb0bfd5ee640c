"""Commands sent to the preferred writer, and decided here when it does not answer.

A command is idempotent, so one that was sent, not answered in time and then decided here is
decided once. Forwarding is for speed only: without it every replica writes for itself and the
log's expected position keeps them from harming one another.
"""

import asyncio
import contextlib
from typing import Final, Protocol

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg

from ledger.core.commands import AnyCommand
from ledger.core.denials import Denial, Reason
from ledger.log import answers
from ledger.log.connection import Connection
from ledger.log.port import LogError
from ledger.log.streams import Names
from ledger.log.submission import Accepted, Ledger

_HELPLESS: Final = (Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED)
"""Answers of an owner that cannot decide; this replica may be able to."""

_logger: Final = structlog.get_logger("ledger.log")


class ForwardingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of forwarding, times in seconds."""

    answer_seconds: float = 1.0
    """How long the owner may take before the command is decided here."""
    avoid_seconds: float = 5.0
    """How long an owner that did not answer is not asked again."""
    in_flight_max: int = 4_096
    """Most commands on their way to the owner, and most taken from others at the same time."""


class Preference(Protocol):
    """Who should write; `owner.Owner` is one."""

    writer: str

    @property
    def owner(self) -> str | None:
        """The preferred writer's id, None when nobody is known."""
        ...


class _Forwarded(msgspec.Struct, frozen=True, array_like=True):
    command: AnyCommand
    dry_run: bool


class _Answered(msgspec.Struct, frozen=True):
    accepted: Accepted | None = None
    denial: Denial | None = None


_encoder: Final = msgspec.msgpack.Encoder()
_forwarded: Final = msgspec.msgpack.Decoder(_Forwarded)
_answered: Final = msgspec.msgpack.Decoder(_Answered)


class Forwarder:
    """A `Ledger` that asks the preferred writer first and the local one otherwise."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
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
        self._avoided = ""
        self._avoided_until = 0.0

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command at the preferred writer or here; see `Ledger.submit`."""
        owner = self._preference.owner
        if owner is not None and self._worth_asking(owner):
            answer = await self._ask(owner, _Forwarded(command, dry_run))
            if answer is not None:
                return answer
        return await self._local.submit(command, dry_run=dry_run)

    def _worth_asking(self, owner: str) -> bool:
        if owner == self._preference.writer or self._in_flight >= self._settings.in_flight_max:
            return False
        return owner != self._avoided or _now() >= self._avoided_until

    async def _ask(self, owner: str, forwarded: _Forwarded) -> Accepted | Denial | None:
        """Ask the owner; None when it cannot decide or does not answer."""
        self._in_flight += 1
        try:
            answer = _answered.decode(
                await self._connection.request(
                    self._names.commands_subject(owner),
                    _encoder.encode(forwarded),
                    deadline=self._settings.answer_seconds,
                )
            )
        except (LogError, TimeoutError, msgspec.MsgspecError) as error:
            self._avoid(owner, error)
            return None
        finally:
            self._in_flight -= 1
        if answer.denial is not None and answer.denial.reason in _HELPLESS:
            return None
        return answer.accepted or answer.denial

    def _avoid(self, owner: str, error: Exception) -> None:
        if _now() >= self._avoided_until or owner != self._avoided:
            _logger.warning("owner_does_not_answer", owner=owner, error=str(error))
        self._avoided, self._avoided_until = owner, _now() + self._settings.avoid_seconds


class CommandServer:
    """Takes other replicas' commands for this one's writer. Use `start` and `stop`."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        writer: str,
        local: Ledger,
        settings: ForwardingSettings | None = None,
    ) -> None:
        """Serve a writer's subject; `local` must be the writer itself, never a `Forwarder`."""
        self._connection = connection
        self._subject = names.commands_subject(writer)
        self._local = local
        self._settings = settings or ForwardingSettings()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to take commands. Raises Unreachable."""
        await self._connection.subscribe(self._subject, self._receive)

    async def stop(self) -> None:
        """Take no more commands; those under way are given up, whoever sent them decides them."""
        with contextlib.suppress(nats.errors.Error):
            await self._connection.unsubscribe(self._subject)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _receive(self, message: Msg) -> None:
        if len(self._tasks) >= self._settings.in_flight_max:
            # Not answering would cost the sender its whole deadline.
            await _reply(
                message,
                answers.overloaded(
                    f"{self._settings.in_flight_max} forwarded commands are being decided already"
                ),
            )
            return
        task = asyncio.create_task(self._decide(message), name="forwarded-command")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, message: Msg) -> None:
        try:
            forwarded = _forwarded.decode(message.data)
        except msgspec.MsgspecError as error:
            # A replica of another version; it decides for itself when nobody answers.
            _logger.warning("forwarded_command_unreadable", error=str(error))
            return
        answer = await self._local.submit(forwarded.command, dry_run=forwarded.dry_run)
        await _reply(message, answer)


async def _reply(message: Msg, answer: Accepted | Denial) -> None:
    if isinstance(answer, Accepted):
        payload = _encoder.encode(_Answered(accepted=answer))
    else:
        payload = _encoder.encode(_Answered(denial=answer))
    # A sender that cannot be reached any more decides for itself.
    with contextlib.suppress(nats.errors.Error):
        await message.respond(payload)


def _now() -> float:
    return asyncio.get_running_loop().time()

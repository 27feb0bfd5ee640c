"""Absence proofs: an attempt was not written, and no longer can be.

An attempt that is older than any request can be is dead if a linearizable list of its kind and
namespace, begun after that bound, does not hold its object. Neither the age alone nor a list that
began too early or failed is a proof. One list serves all attempts of a kind in a namespace.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final, Protocol

import msgspec
import structlog

from ledger.core.model.commands import AnyCommand, Refute
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable
from ledger.tasks.backoff import Backoff
from webhook.settlement.charge_settlement_session import WATCHED, SettlementSession
from webhook.settlement.objects_missing_from_list import end_missing
from webhook.settlement.observation_commands import (
    ObservedObject,
    command_if_changed,
    is_reserved,
)
from webhook.settlement.open_attempt_ages import Attempt, AttemptAges, OpenAttempt, Proven

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
"""Pauses after a list failed; they double."""

ATTEMPTS_MAX: Final = 4_096
"""Attempts that are checked in one round, the oldest first."""

_log: Final = structlog.get_logger("webhook")

Place = tuple[str, str]
"""A qualified namespace and the prefix of a kind's keys, such as `pods` or `jobs.batch`."""


class ListResult(msgspec.Struct, frozen=True):
    """The objects that a list at `version` holds at the requested keys.

    `present` has their uids by key, `seen` the observations of those that were read.
    """

    version: int
    present: dict[str, str]
    seen: dict[str, ObservedObject]


class ObjectLister(Protocol):
    """Lists the objects of one kind."""

    async def list_keys(self, namespace: str, keys: Collection[str]) -> ListResult:
        """Look for keys of a namespace, linearizably. Raises ClusterError: nothing is known."""
        ...


class AbsenceProver:
    """Ends the open attempts of one cluster that were not written."""

    def __init__(
        self,
        session: SettlementSession,
        ages: AttemptAges,
        *,
        lister_of: Callable[[str], ObjectLister | None],
    ) -> None:
        """`lister_of` returns the lister of a kind by name, None if the kind is not watched."""
        self._session = session
        self._ages = ages
        self._lister_of = lister_of
        self._backoffs: dict[Place, Backoff] = {}

    async def settle(self) -> None:
        """List the places of attempts older than the bound, and end those that were not written."""
        clock = asyncio.get_running_loop().time
        bound = self._session.settings.settle_seconds
        waiting: dict[Place, list[OpenAttempt]] = defaultdict(list)
        for attempt in islice(self._ages.at_least(bound, clock()), ATTEMPTS_MAX):
            waiting[attempt.namespace, attempt.key.partition("/")[0]].append(attempt)
        for place, attempts in waiting.items():
            backoff = self._backoffs.get(place)
            if backoff is None or backoff.is_over():
                await self._settle(place, attempts)

    async def _settle(self, place: Place, attempts: list[OpenAttempt]) -> None:
        begun = asyncio.get_running_loop().time()
        self._session.count("settle_lists_total")
        keys: dict[str, list[OpenAttempt]] = defaultdict(list)
        for attempt in attempts:
            keys[attempt.key].append(attempt)
        try:
            listed = await self._list(place, keys)
        except ClusterError as error:
            self._session.count("settle_failures_total")
            self._postpone(place, str(error))
            return
        except Exception as error:  # noqa: BLE001 - a defect must not stop the service
            self._session.failures.note(place[1], f"of namespace {place[0]}", error)
            self._postpone(place, str(error))
            return
        self._backoffs.pop(place, None)
        for key, proved in keys.items():
            commands = self._commands(place[0], key, listed, begun)
            self._restart_ages(place[0], key, proved)
            for command in commands:
                await self._session.commands.send(command)

    async def _list(self, place: Place, keys: Collection[str]) -> ListResult:
        namespace, kind = place
        lister = self._lister_of(kind)
        if lister is None:
            raise ClusterUnavailable(f"it is not known where {kind} are served")
        return await lister.list_keys(namespace, keys)

    def _commands(
        self, namespace: str, key: str, listed: ListResult, begun: float
    ) -> list[AnyCommand]:
        """Return the commands about a key that follow from a list begun at monotonic `begun`."""
        session = self._session
        entry = session.entry(namespace, key)
        if entry is None:
            return []

        def proven(attempt: Attempt) -> bool:
            # Read for every key: the age of a hold that was raised since the list began is reset.
            age = self._ages.of(OpenAttempt(namespace, key, *attempt), begun)
            return age >= session.settings.settle_seconds

        uid, seen = listed.present.get(key, ""), listed.seen.get(key)
        version = listed.version
        commands: list[AnyCommand] = [
            *end_missing(namespace, key, entry, uid, version, WATCHED, proven)
        ]
        if seen is not None:
            command = command_if_changed(entry, seen, WATCHED)
            commands += [command] if command is not None else []
            commands += refute_unwritten(entry, seen, WATCHED, proven)
        return commands

    def _restart_ages(self, namespace: str, key: str, attempts: list[OpenAttempt]) -> None:
        """Restart the ages of attempts that are still open, and forget the others."""
        entry, now = self._session.entry(namespace, key), asyncio.get_running_loop().time()
        held = {(hold.uid, hold.base) for hold in entry.holds} if entry is not None else set()
        for attempt in attempts:
            if (attempt.uid, attempt.base) in held:
                self._ages.start(attempt, now)
            else:
                self._ages.end(attempt)

    def _postpone(self, place: Place, reason: str) -> None:
        """Lengthen the pause of a place whose list failed."""
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._backoffs.setdefault(place, backoff).failed()
        _log.warning("barrier_postponed", namespace=place[0], kind=place[1], reason=reason)


def refute_unwritten(
    entry: Entry, seen: ObservedObject, actor: str, proven: Proven
) -> Iterator[Refute]:
    """Yield the commands that refute updates whose base is still stored, where that is `proven`.

    The updates of a waiting pod are refuted even if a newer version is stored, because nothing
    commits them.
    """
    waits = seen.gated and not is_reserved(entry, seen)
    for hold in entry.holds:
        unwritten = hold.base >= seen.version or waits
        if hold.uid == seen.uid and unwritten and proven((hold.uid, hold.base)):
            where = (seen.namespace, seen.key, hold.uid, hold.base)
            yield Refute(*where, Cause.ABSENT, actor, raises=hold.raises)

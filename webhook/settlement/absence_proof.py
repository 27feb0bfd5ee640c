"""The barrier: proof that an attempt was not written and no longer can be.

An attempt that is older than any request can last is dead if a linearizable list of its kind in its
namespace, begun after that bound, does not show it. The age alone proves nothing, nor does a list
that began too early or failed. One list serves all the attempts of a kind in a namespace.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final, Protocol

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.kube.api.errors import ClusterError, Unavailable
from ledger.tasks.backoff import Backoff
from webhook.settlement.attempt_ages import AttemptAges, OpenAttempt
from webhook.settlement.observation import (
    Attempt,
    ObservedObject,
    command_if_changed,
    end_missing,
    refute_unwritten,
)
from webhook.settlement.settlement_session import WATCHED, SettlementSession

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
"""Pauses before a list that failed is tried again; they double."""

ATTEMPTS_MAX: Final = 4_096
"""Attempts that are looked at in one round, the oldest first."""

_log: Final = logging.getLogger(__name__)

Place = tuple[str, str]
"""A qualified namespace and the name of a kind in it, as keys begin: `pods`, `jobs.batch`."""


class ListResult(msgspec.Struct, frozen=True):
    """What a list at `version` shows at the keys that were asked about.

    `present` has the uids, `seen` what is to be told of them.
    """

    version: int
    present: dict[str, str]
    seen: dict[str, ObservedObject]


class ObjectLister(Protocol):
    """Lists the objects of one kind."""

    async def look(self, namespace: str, keys: Collection[str]) -> ListResult:
        """Look for keys of a namespace, linearizably. Raises ClusterError: nothing is known."""
        ...


class AbsenceProver:
    """Proves open attempts of one cluster dead, or finds them alive."""

    def __init__(
        self,
        tenure: SettlementSession,
        ages: AttemptAges,
        looking: Callable[[str], ObjectLister | None],
    ) -> None:
        """`looking` returns who lists the kind of a name, None when it is not served."""
        self._tenure = tenure
        self._ages = ages
        self._looking = looking
        self._backoffs: dict[Place, Backoff] = {}

    async def settle(self) -> None:
        """Go through the places that have attempts beyond the bound."""
        clock = asyncio.get_running_loop().time
        bound = self._tenure.settings.settle_seconds
        waiting: dict[Place, list[OpenAttempt]] = defaultdict(list)
        for attempt in islice(self._ages.at_least(bound, clock()), ATTEMPTS_MAX):
            waiting[attempt.namespace, attempt.key.partition("/")[0]].append(attempt)
        for place, attempts in waiting.items():
            backoff = self._backoffs.get(place)
            if backoff is None or backoff.is_over():
                await self._settle(place, attempts)

    async def _settle(self, place: Place, attempts: list[OpenAttempt]) -> None:
        begun = asyncio.get_running_loop().time()
        self._tenure.count("settle_lists_total")
        keys: dict[str, list[OpenAttempt]] = defaultdict(list)
        for attempt in attempts:
            keys[attempt.key].append(attempt)
        try:
            looked = await self._look(place, keys)
        except ClusterError as error:
            self._tenure.count("settle_failures_total")
            self._postpone(place, str(error))
            return
        except Exception as error:  # noqa: BLE001 - a defect may not cost the service
            self._tenure.failures.note(place[1], f"of namespace {place[0]}", error)
            self._postpone(place, str(error))
            return
        self._backoffs.pop(place, None)
        for key, asked in keys.items():
            found = self._judge(place[0], key, looked, begun)
            self._ask_later(place[0], key, asked)
            for command in found:
                await self._tenure.courier.send(command)

    async def _look(self, place: Place, keys: Collection[str]) -> ListResult:
        namespace, kind = place
        looking = self._looking(kind)
        if looking is None:
            raise Unavailable(f"it is not known where {kind} are served")
        return await looking.look(namespace, keys)

    def _judge(
        self, namespace: str, key: str, looked: ListResult, begun: float
    ) -> list[AnyCommand]:
        """Return what a list that was begun at `begun` monotonic seconds says of a key."""
        tenure = self._tenure
        entry = tenure.entry(namespace, key)
        if entry is None:
            return []

        def proven(attempt: Attempt) -> bool:
            # Asked anew for every key: a hold that was raised since the list began is young again.
            age = self._ages.of(OpenAttempt(namespace, key, *attempt), begun)
            return age >= tenure.settings.settle_seconds

        uid, seen = looked.present.get(key, ""), looked.seen.get(key)
        version = looked.version
        found: list[AnyCommand] = [
            *end_missing(namespace, key, entry, uid, version, WATCHED, proven)
        ]
        if seen is not None:
            command = command_if_changed(entry, seen, WATCHED)
            found += [command] if command is not None else []
            found += refute_unwritten(entry, seen, WATCHED, proven)
        return found

    def _ask_later(self, namespace: str, key: str, attempts: list[OpenAttempt]) -> None:
        """Give what was judged another whole bound to settle, and forget what is not open."""
        entry, now = self._tenure.entry(namespace, key), asyncio.get_running_loop().time()
        held = {(hold.uid, hold.base) for hold in entry.holds} if entry is not None else set()
        for attempt in attempts:
            if (attempt.uid, attempt.base) in held:
                self._ages.start(attempt, now)
            else:
                self._ages.end(attempt)

    def _postpone(self, place: Place, reason: str) -> None:
        """A list that failed proves nothing: try again later, and later still."""
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._backoffs.setdefault(place, backoff).failed()
        extra = {"namespace": place[0], "kind": place[1], "reason": reason}
        _log.warning("barrier_postponed", extra=extra)

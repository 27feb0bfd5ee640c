"""The barrier: proof that an attempt was not written and no longer can be.

An attempt that is older than any request can last is dead if a linearizable list of its namespace,
begun after that bound, does not show it. The age alone proves nothing, nor does a list that began
too early or failed. One list serves all the attempts of a namespace.
"""

import asyncio
import logging
from collections import defaultdict
from itertools import islice
from typing import Final

import msgspec

from ledger.core.commands import AnyCommand
from ledger.kube.errors import ClusterError
from ledger.kube.objects import Pod
from webhook.ages import Ages, OpenAttempt
from webhook.sighting import POD_KEYS, Attempt, missing, news, sight, unwritten
from webhook.tenure import WATCHED, Tenure

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
"""Pauses before a namespace whose list failed is tried again; they double."""

ATTEMPTS_MAX: Final = 4_096
"""Attempts that are looked at in one round, the oldest first."""

_log: Final = logging.getLogger(__name__)


class _Pause(msgspec.Struct, frozen=True):
    """No list of this namespace before `until`; the next pause takes `seconds`."""

    until: float
    seconds: float


_NO_PAUSE: Final = _Pause(0.0, RETRY_SECONDS)


class Barrier:
    """Proves open attempts of one cluster dead, or finds them alive."""

    def __init__(self, tenure: Tenure, ages: Ages) -> None:
        self._tenure = tenure
        self._ages = ages
        self._pauses: dict[str, _Pause] = {}

    async def settle(self) -> None:
        """Go through the namespaces that have attempts beyond the bound."""
        clock = asyncio.get_running_loop().time
        bound = self._tenure.settings.settle_seconds
        waiting: dict[str, list[OpenAttempt]] = defaultdict(list)
        for attempt in islice(self._ages.at_least(bound, clock()), ATTEMPTS_MAX):
            waiting[attempt.namespace].append(attempt)
        for namespace, attempts in waiting.items():
            if self._pauses.get(namespace, _NO_PAUSE).until <= clock():
                await self._settle(namespace, attempts)

    async def _settle(self, namespace: str, attempts: list[OpenAttempt]) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        self._tenure.count("settle_lists_total")
        try:
            listed = await self._tenure.cluster.list_pods(namespace.partition("/")[2])
        except ClusterError as error:
            self._tenure.count("settle_failures_total")
            self._postpone(namespace, str(error))
            return
        self._pauses.pop(namespace, None)
        pods = {POD_KEYS + pod.metadata.name: pod for pod in listed.objects}
        for key in dict.fromkeys(attempt.key for attempt in attempts):
            found = self._judge(namespace, key, pods.get(key), listed.version, begun)
            self._ask_later(namespace, key, [one for one in attempts if one.key == key])
            for command in found:
                await self._tenure.courier.send(command)

    def _judge(
        self, namespace: str, key: str, pod: Pod | None, version: int, begun: float
    ) -> list[AnyCommand]:
        """Return what a list at `version`, begun at `begun` monotonic seconds, says of a key."""
        tenure = self._tenure
        entry = tenure.entry(namespace, key)
        if entry is None:
            return []

        def proven(attempt: Attempt) -> bool:
            # Asked anew for every key: a hold that was raised since the list began is young again.
            age = self._ages.of(OpenAttempt(namespace, key, *attempt), begun)
            return age >= tenure.settings.settle_seconds

        uid = pod.metadata.uid if pod is not None else ""
        found: list[AnyCommand] = [*missing(namespace, key, entry, uid, version, WATCHED, proven)]
        if pod is not None:
            seen = sight(pod, tenure.name, tenure.settings.rules, tenure.now(), deleted=False)
            command = news(entry, seen, WATCHED)
            found += [command] if command is not None else []
            found += unwritten(entry, seen, WATCHED, proven)
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

    def _postpone(self, namespace: str, reason: str) -> None:
        """A list that failed proves nothing: try again later, and later still."""
        seconds = self._pauses.get(namespace, _NO_PAUSE).seconds
        until = asyncio.get_running_loop().time() + seconds
        self._pauses[namespace] = _Pause(until, min(2 * seconds, RETRY_SECONDS_MAX))
        _log.warning("barrier_postponed", extra={"namespace": namespace, "reason": reason})

"""Pods: what the watch tells becomes commits, releases and, after every list, a recount."""

import asyncio
import logging
from typing import Final

import msgspec

from ledger.core.events import Cause
from ledger.kube.objects import Pod
from ledger.kube.port import Change, Changed, Listed
from webhook.ages import Ages, OpenAttempt
from webhook.sighting import POD_KEYS, Sighting, missing, news, sight, told
from webhook.tenure import RECOUNTED, WATCHED, Stride, Tenure

_log: Final = logging.getLogger(__name__)


class Pods:
    """Follows the pods of one cluster. `puzzling` counts those whose request makes no sense."""

    def __init__(self, tenure: Tenure, ages: Ages) -> None:
        self._tenure = tenure
        self._ages = ages
        self._terminating: dict[str, Sighting] = {}
        self._puzzling: set[str] = set()

    @property
    def puzzling(self) -> int:
        """How many pods exist whose request cannot be understood; nothing is charged for them."""
        return len(self._puzzling)

    async def take(self, change: Change[Pod]) -> None:
        """Tell the ledger what a change of the watch means."""
        if isinstance(change, Listed):
            await self._recount(change)
        elif isinstance(change, Changed):
            await self._tell(self._see(change.object, deleted=change.deleted))

    async def end_elapsed(self) -> None:
        """End what terminating pods are charged once their grace period is over."""
        now = self._tenure.now()
        for seen in [one for one in self._terminating.values() if one.grace_ends < now]:
            del self._terminating[seen.uid]
            await self._tell(msgspec.structs.replace(seen, cause=Cause.FINISHED))

    def _see(self, pod: Pod, *, deleted: bool) -> Sighting:
        """Read a pod, and remember what has to be remembered about it."""
        tenure = self._tenure
        seen = sight(pod, tenure.name, tenure.settings.rules, tenure.now(), deleted=deleted)
        if seen.grace_ends and not seen.cause:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        if not seen.problem or seen.cause:
            self._puzzling.discard(seen.uid)
        elif seen.uid not in self._puzzling:
            self._puzzling.add(seen.uid)
            _log.warning(
                "pod_not_understood",
                extra={"namespace": seen.namespace, "key": seen.key, "reason": seen.problem},
            )
        return seen

    async def _tell(self, seen: Sighting) -> None:
        """Tell the ledger, unless it knows and nothing is on its way that could change that."""
        tenure = self._tenure
        if tenure.courier.is_pending(seen.namespace, seen.key):
            await tenure.courier.send(told(seen, WATCHED))
            return
        command = news(tenure.entry(seen.namespace, seen.key), seen, WATCHED)
        if command is not None:
            await tenure.courier.send(command)

    async def _recount(self, listed: Listed[Pod]) -> None:
        """Compare the ledger with everything that exists at one version, and tell what differs."""
        await self._tenure.courier.flush()
        self._terminating.clear()
        self._puzzling.clear()
        present = await self._tell_present(listed.objects)
        await self._tell_missing(present, listed.version)
        await find_open(self._tenure, self._ages)
        await self._tenure.courier.flush()

    async def _tell_present(self, pods: list[Pod]) -> dict[tuple[str, str], str]:
        """Tell what exists; return the uids by namespace and key."""
        tenure, stride = self._tenure, Stride()
        present: dict[tuple[str, str], str] = {}
        for pod in pods:
            seen = self._see(pod, deleted=False)
            present[seen.namespace, seen.key] = seen.uid
            command = news(tenure.entry(seen.namespace, seen.key), seen, RECOUNTED)
            if command is not None:
                await tenure.courier.send(command)
            await stride.step()
        return present

    async def _tell_missing(self, present: dict[tuple[str, str], str], version: int) -> None:
        """End what the ledger still counts and the list does not hold.

        The list may have begun before any bound, so creations never seen are not judged by it.
        """
        tenure, stride = self._tenure, Stride()
        for namespace in tenure.namespaces():
            for key in tenure.keys(namespace, POD_KEYS):
                await stride.step()
                entry = tenure.entry(namespace, key)
                if entry is None:
                    continue
                uid = present.get((namespace, key), "")
                for command in missing(namespace, key, entry, uid, version, RECOUNTED):
                    await tenure.courier.send(command)


async def find_open(tenure: Tenure, ages: Ages) -> None:
    """Start the age of every open attempt that has none yet, as when a tenure begins."""
    stride, clock = Stride(), asyncio.get_running_loop().time
    for namespace in tenure.namespaces():
        for key in tenure.keys(namespace, POD_KEYS):
            await stride.step()
            entry = tenure.entry(namespace, key)
            for hold in entry.holds if entry is not None else ():
                ages.start_unless_known(OpenAttempt(namespace, key, hold.uid, hold.base), clock())

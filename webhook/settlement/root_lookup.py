"""Lineage: whose envelope an object counts in, as far as settlement is concerned.

A root that the ledger has recorded stays until the object has no controller any more, or another
object that is charged turns out to be its root: pods outlive their Deployment, and must not move
because a cache does not know it any more.
"""

import asyncio
from typing import Final

import msgspec

from ledger.core.model.commands import BARRED
from ledger.core.model.events import Cause
from ledger.kube.api.objects import ObjectMeta
from webhook.context.owner_chain import OwningRoot
from webhook.settlement.observation import ObservedObject, holds_uid, recorded_root
from webhook.settlement.settlement_session import SettlementSession
from webhook.settlement.workloads.workload_observation import ObservedWorkload

READ_SECONDS: Final = 2.0
"""Deadline of reading the owners of one object: the watch waits for it."""

LIST_READ_SECONDS: Final = 10.0
"""Deadline of reading the owners of all objects that one list of a namespace holds."""

RECOUNT_READ_SECONDS: Final = 30.0
"""Deadline of reading the owners of all objects of one recount."""


class RootLookup:
    """Finds the roots of objects of one cluster."""

    def __init__(self, session: SettlementSession) -> None:
        self.unresolved: dict[str, None] = {}
        """Qualified namespaces of pods whose root should be known and could not be found."""
        self._session = session
        self._owner_chains = session.context.owner_chains

    async def of_pod(
        self, seen: ObservedObject, meta: ObjectMeta, deadline: float = 0.0
    ) -> ObservedObject:
        """Return the sighting of a pod with its root, reading until loop time `deadline`.

        Without a deadline, owners that are not remembered are read in `READ_SECONDS`.
        """
        if not seen.demand or seen.cause or meta.controller() is None:
            return seen
        recorded = recorded_root(self._session.entry(seen.namespace, seen.key), seen.uid)
        if recorded == BARRED:
            return msgspec.structs.replace(seen, root=BARRED)
        found = self._owner_chains.known_root_of(meta.namespace, meta)
        if not recorded and not self._is_charged(seen.namespace, found):
            found = await self._owner_chains.root_of(
                meta.namespace, meta, deadline=deadline or loop_time_after(READ_SECONDS)
            )
            if found is None and self._owner_chains.controller_kind(meta) is not None:
                self.unresolved[seen.namespace] = None
        elif recorded and not self._is_charged(seen.namespace, found):
            return msgspec.structs.replace(seen, root=recorded)
        return msgspec.structs.replace(seen, root=found.key) if found is not None else seen

    async def of_root(
        self, one: ObservedWorkload, *, was_part: bool, deadline: float = 0.0
    ) -> tuple[ObservedObject, bool]:
        """Return the sighting of an object of a kind of roots, and whether it is part of another.

        What is part of another root is charged nothing itself: should the ledger have charged it,
        that is over. What names a controller that does not exist, or no longer does, is about to
        be removed, and is not charged anew.
        """
        seen, session = one.seen, self._session
        if one.controller is None or seen.cause:
            return seen, False
        entry, meta = session.entry(seen.namespace, seen.key), one.metadata()
        if recorded_root(entry, seen.uid) == BARRED:
            return msgspec.structs.replace(seen, root=BARRED), False
        above = self._owner_chains.known_root_of(meta.namespace, meta)
        if above is None:
            above = await self._owner_chains.root_of(
                meta.namespace, meta, deadline=deadline or loop_time_after(READ_SECONDS)
            )
        if above is not None:
            return msgspec.structs.replace(seen, cause=Cause.MOVED), True
        is_left_behind = was_part or self._owner_chains.controller_kind(meta) is not None
        return seen, is_left_behind and not holds_uid(entry, seen.uid)

    def _is_charged(self, namespace: str, root: OwningRoot | None) -> bool:
        """Return whether the ledger has an entry for a root."""
        return root is not None and holds_uid(self._session.entry(namespace, root.key), root.uid)


def loop_time_after(seconds: float) -> float:
    """Return the loop time at which so many seconds will have passed."""
    return asyncio.get_running_loop().time() + seconds

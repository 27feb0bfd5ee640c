"""Root lookup: the root in whose envelope settlement counts an object.

A recorded root stays until the object has no controller, or until another charged object is found
to be its root. Pods outlive their Deployment, and must not move because a cache has dropped it.
"""

import asyncio
from typing import Final

import msgspec

from ledger.core.model.commands import BARRED
from ledger.core.model.events import Cause
from ledger.kube.api.objects import ObjectMeta
from webhook.context.owner_chain import OwningRoot
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.observation_commands import ObservedObject
from webhook.settlement.workloads.workload_observation import ObservedWorkload

READ_SECONDS: Final = 2.0
"""Deadline of reading the owners of one object, for which the watch waits."""

LIST_READ_SECONDS: Final = 10.0
"""Deadline of reading the owners of all objects of one list of a namespace."""

RECOUNT_READ_SECONDS: Final = 30.0
"""Deadline of reading the owners of all objects of one recount."""


class RootLookup:
    """Finds the roots of objects of one cluster."""

    def __init__(self, session: SettlementSession) -> None:
        self.unresolved: dict[str, None] = {}
        """Qualified namespaces of pods that should have a root, which could not be read."""
        self._session = session
        self._owner_chains = session.context.owner_chains

    async def of_pod(
        self, seen: ObservedObject, meta: ObjectMeta, deadline: float = 0.0
    ) -> ObservedObject:
        """Return the observation of a pod with its root, reading until loop time `deadline`.

        Without a deadline, owners that are not cached are read in `READ_SECONDS`. A pod whose
        resource claims are charged by themselves demands nothing, and keeps its root.
        """
        if seen.cause or meta.controller() is None:
            return seen
        entry = self._session.entry(seen.namespace, seen.key)
        recorded = entry.root_of(seen.uid) if entry is not None else ""
        if not seen.demand and not recorded:
            return seen
        if recorded == BARRED:
            return msgspec.structs.replace(seen, root=BARRED)
        root = self._owner_chains.known_root_of(meta.namespace, meta)
        if not recorded and not self._is_charged(seen.namespace, root):
            root = await self._owner_chains.root_of(
                meta.namespace, meta, deadline=deadline or loop_time_after(READ_SECONDS)
            )
            if root is None and self._owner_chains.controller_kind(meta) is not None:
                self.unresolved[seen.namespace] = None
        elif recorded and not self._is_charged(seen.namespace, root):
            return msgspec.structs.replace(seen, root=recorded)
        return msgspec.structs.replace(seen, root=root.key) if root is not None else seen

    async def of_root(
        self, workload: ObservedWorkload, *, was_part: bool, deadline: float = 0.0
    ) -> tuple[ObservedObject, bool]:
        """Return the observation of a workload, and whether it is part of another root.

        A part of another root is charged nothing itself, and an earlier charge of it is released.
        A workload whose controller does not exist is about to be deleted, and gets no new charge.
        """
        seen, session = workload.seen, self._session
        if workload.controller is None or seen.cause:
            return seen, False
        entry, meta = session.entry(seen.namespace, seen.key), workload.metadata()
        if entry is not None and entry.root_of(seen.uid) == BARRED:
            return msgspec.structs.replace(seen, root=BARRED), False
        above = self._owner_chains.known_root_of(meta.namespace, meta)
        if above is None:
            above = await self._owner_chains.root_of(
                meta.namespace, meta, deadline=deadline or loop_time_after(READ_SECONDS)
            )
        if above is not None:
            return msgspec.structs.replace(seen, cause=Cause.MOVED), True
        is_left_behind = was_part or self._owner_chains.controller_kind(meta) is not None
        is_charged = entry is not None and entry.holds_uid(seen.uid)
        return seen, is_left_behind and not is_charged

    def _is_charged(self, namespace: str, root: OwningRoot | None) -> bool:
        """Return whether the ledger charges a root, or holds something for it."""
        entry = self._session.entry(namespace, root.key) if root is not None else None
        return root is not None and entry is not None and entry.holds_uid(root.uid)


def loop_time_after(seconds: float) -> float:
    """Return the loop time in so many seconds."""
    return asyncio.get_running_loop().time() + seconds

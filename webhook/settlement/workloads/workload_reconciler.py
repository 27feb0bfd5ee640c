"""Roots: what the watch of one kind tells becomes commits, releases and recounts.

An object that is part of another root, such as the ReplicaSet of a Deployment, is charged nothing
itself. When that changes, or a root ends before its pods do, the pods of its namespace are looked
at again: they have not changed, but where they count has.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Final

import msgspec

from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.errors import NotServed, Unavailable
from ledger.kube.api.objects import Workload
from ledger.kube.api.ports import Change, Changed, Interrupted, Listed
from ledger.kube.api.resources import Resource
from ledger.tasks.periodic import CooperativeYield
from webhook.context.assumed_demand import with_promised_demand
from webhook.kinds.schema import WorkloadKind, key_of
from webhook.settlement import recount
from webhook.settlement.absence_proof import ListResult
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.observation import ObservedObject, command_for, command_if_changed
from webhook.settlement.recount import Present
from webhook.settlement.root_lookup import (
    LIST_READ_SECONDS,
    RECOUNT_READ_SECONDS,
    RootLookup,
    loop_time_after,
)
from webhook.settlement.settlement_session import RECOUNTED, WATCHED, SettlementSession
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_observation import (
    ObservedWorkload,
    observe_workload,
    unread_root,
)

PROOF_SECONDS: Final = 5.0
"""Deadline of finding out whether a kind that is not served has objects."""

Recheck = Callable[[str], None]
"""Asks to look again at the pods of a qualified namespace."""


class WorkloadReconciler:
    """Follows the objects of one kind in one cluster."""

    def __init__(
        self,
        kind: WorkloadKind,
        resource: Resource,
        tenure: SettlementSession,
        ages: AttemptAges,
        puzzling: InvalidObjects,
        charging_modes: ChargingModes,
        relook: Recheck,
    ) -> None:
        assert tenure.beyond is not None, "roots are read from more than pods and quotas"
        self.prefix = key_of(kind, "")
        self.resource = resource
        self._cluster = tenure.beyond.cluster
        self._kind = kind
        self._tenure = tenure
        self._ages = ages
        self._puzzling = puzzling
        self._charging_modes = charging_modes
        self._relook = relook
        self._lineage = RootLookup(tenure)
        self._parts: set[str] = set()

    def keep(self, workload: Workload) -> ObservedWorkload:
        """Return what is remembered of an object while a list is read."""
        tenure, namespace = self._tenure, workload.metadata.namespace
        try:
            manner = self._charging_modes.of(namespace)
            return observe_workload(self._kind, workload, tenure.name, tenure.rules, manner)
        except Exception as error:  # noqa: BLE001 - a defect may cost one object, not the service
            return unread_root(self._kind, workload, tenure.name, error)

    async def take(self, change: Change[ObservedWorkload]) -> None:
        """Tell the ledger what a change of the watch means."""
        if isinstance(change, Listed):
            await self._recount(change)
        elif isinstance(change, Changed):
            await self._tell(change.object, deleted=change.deleted)

    async def sighting(self, one: ObservedWorkload, deadline: float = 0.0) -> ObservedObject | None:
        """Return what counts of an object, None when it is part of another and not charged.

        Owners that are not remembered are read until loop time `deadline`. Raises why the object
        could not be read.
        """
        if one.unread is not None and not one.seen.cause:
            raise one.unread
        seen, is_part = await self._lineage.of_root(
            one, was_part=one.seen.uid in self._parts, deadline=deadline
        )
        seen = with_promised_demand(self._tenure.view.state, seen)
        self._puzzling.note(seen)
        if is_part:
            self._parts.add(seen.uid)
            return seen if seen.cause else None
        if seen.uid in self._parts:
            self._parts.discard(seen.uid)
            self._relook(seen.namespace)
        return seen

    async def look(self, namespace: str, keys: Collection[str]) -> ListResult:
        """Look for objects of a qualified namespace, linearizably. Raises ClusterError."""
        listed = await self._list(namespace)
        found = {one.seen.key: one for one in listed.objects if one.seen.key in keys}
        deadline = loop_time_after(LIST_READ_SECONDS)
        readable = {key: one for key, one in found.items() if one.unread is None}
        told = {key: await self.sighting(one, deadline) for key, one in readable.items()}
        return ListResult(
            listed.version,
            {key: one.seen.uid for key, one in found.items()},
            {key: seen for key, seen in told.items() if seen is not None},
        )

    async def _list(self, namespace: str) -> Listed[ObservedWorkload]:
        """List the kind in a namespace; a kind that is gone has no objects, if that is proved."""
        try:
            listed = await self._cluster.list_objects(self.resource, local_name(namespace))
        except NotServed:
            return await self._proved_gone()
        return Listed(listed.version, [self.keep(one) for one in listed.objects])

    async def _proved_gone(self) -> Listed[ObservedWorkload]:
        """Return the empty list of a kind that does not exist. Raises Unavailable without proof."""
        where = self.resource.collection()
        try:
            async with (
                asyncio.timeout(PROOF_SECONDS),
                aclosing(self._cluster.watch_kept(self.resource, self.keep)) as changes,
            ):
                async for change in changes:
                    if isinstance(change, Listed) and not change.objects:
                        return change
                    if not (isinstance(change, Interrupted) and change.absent):
                        break
        except TimeoutError:
            pass
        raise Unavailable(f"{where} is not served, and nothing proves that its objects are gone")

    async def _tell(self, one: ObservedWorkload, *, deleted: bool) -> None:
        """Tell the ledger, unless it knows and nothing is on its way that could change that."""
        tenure = self._tenure
        if deleted:
            one = msgspec.structs.replace(
                one, seen=msgspec.structs.replace(one.seen, cause=Cause.DELETED)
            )
            self._parts.discard(one.seen.uid)
        seen = await self.sighting(one)
        if seen is None:
            return
        if tenure.courier.is_pending(seen.namespace, seen.key):
            await tenure.courier.send(command_for(seen, WATCHED))
        else:
            await self._send_news(seen, WATCHED)

    async def _send_news(self, seen: ObservedObject, actor: str) -> None:
        tenure = self._tenure
        command = command_if_changed(tenure.entry(seen.namespace, seen.key), seen, actor)
        if command is None:
            return
        await tenure.courier.send(command)
        if seen.cause and tenure.members(seen.namespace, seen.key):
            self._relook(seen.namespace)

    async def _recount(self, listed: Listed[ObservedWorkload]) -> None:
        """Compare the ledger with all objects of the kind at one version."""
        await self._tenure.catch_up()
        self._puzzling.clear(self.prefix)
        present = await self._tell_present(listed.objects)
        await recount.release_missing(self._tenure, self.prefix, present, listed.version)
        await recount.start_open_attempt_ages(self._tenure, self._ages, self.prefix)
        await self._tenure.courier.flush()

    async def _tell_present(self, objects: list[ObservedWorkload]) -> Present:
        stride, present = CooperativeYield(), Present()
        deadline = loop_time_after(RECOUNT_READ_SECONDS)
        for one in objects:
            present[one.seen.namespace, one.seen.key] = one.seen.uid
            with self._tenure.failures.taking(self._kind.name, one.metadata().full_name()):
                seen = await self.sighting(one, deadline)
                if seen is not None:
                    await self._send_news(seen, RECOUNTED)
            await stride.step()
        self._parts.intersection_update(present.values())
        return present

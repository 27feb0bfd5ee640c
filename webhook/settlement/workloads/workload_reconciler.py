"""Workload reconciler: changes of the watch of one kind become commits, releases and recounts.

An object that is part of another root, such as the ReplicaSet of a Deployment, is charged nothing
itself. When that changes, or a root ends before its pods do, the pods of its namespace are
rechecked, because they are charged elsewhere now although they have not changed.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Final

import msgspec

from ledger.core.model.amounts import covers
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable, NotServed
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed
from ledger.kube.api.objects import Workload
from ledger.tasks.periodic import CooperativeYield
from webhook.kinds.kind_schema import WorkloadKind
from webhook.settlement import objects_missing_from_list, open_attempt_ages
from webhook.settlement.absence_proof import ListResult
from webhook.settlement.charge_settlement_session import RECOUNTED, WATCHED, SettlementSession
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.objects_missing_from_list import Present
from webhook.settlement.observation_commands import (
    ObservedObject,
    command_for,
    command_if_changed,
    with_promised_demand,
)
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.root_lookup import (
    LIST_READ_SECONDS,
    RECOUNT_READ_SECONDS,
    RootLookup,
    loop_time_after,
)
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_observation import (
    ObservedWorkload,
    observe_workload,
    unreadable_workload,
)

PROOF_SECONDS: Final = 5.0
"""Deadline of the proof that a kind that is not served has no objects."""

Recheck = Callable[[str], None]
"""Requests a recheck of the pods of a qualified namespace."""


class WorkloadReconciler:
    """Reconciles the ledger with the objects of one kind in one cluster."""

    def __init__(
        self,
        kind: WorkloadKind,
        resource: Resource,
        *,
        session: SettlementSession,
        ages: AttemptAges,
        invalid_objects: InvalidObjects,
        charging_modes: ChargingModes,
        recheck: Recheck,
    ) -> None:
        self.prefix = f"{kind.name}/"
        self.resource = resource
        self._kind = kind
        self._session = session
        self._ages = ages
        self._invalid_objects = invalid_objects
        self._charging_modes = charging_modes
        self._recheck = recheck
        self._root_lookup = RootLookup(session)
        self._parts: set[str] = set()

    def keep(self, workload: Workload) -> ObservedWorkload:
        """Return the observation of an object; called while a list is read."""
        session, namespace = self._session, workload.metadata.namespace
        try:
            mode, rules = self._charging_modes.of(namespace), session.context.rules
            return observe_workload(self._kind, workload, session.name, rules, mode)
        except Exception as error:  # noqa: BLE001 - a defect may cost one object, not the service
            return unreadable_workload(self._kind, workload, session.name, error)

    async def take(self, change: Change[ObservedWorkload]) -> None:
        """Queue the commands that follow from a change of the watch."""
        if isinstance(change, Listed):
            await self._recount(change)
        elif isinstance(change, Changed):
            await self._send(change.object, deleted=change.deleted)

    async def _observe(
        self, workload: ObservedWorkload, deadline: float = 0.0
    ) -> ObservedObject | None:
        """Return the observation of an object, None if it is part of another and not charged.

        Owners that are not cached are read until loop time `deadline`. Raises the error with which
        the object could not be read.
        """
        if workload.unreadable is not None and not workload.seen.cause:
            raise workload.unreadable
        seen, is_part = await self._root_lookup.of_root(
            workload, was_part=workload.seen.uid in self._parts, deadline=deadline
        )
        seen = await self._promised(seen)
        self._invalid_objects.note(seen)
        if is_part:
            self._parts.add(seen.uid)
            return seen if seen.cause else None
        if seen.uid in self._parts:
            self._parts.discard(seen.uid)
            self._recheck(seen.namespace)
        return seen

    async def _promised(self, seen: ObservedObject) -> ObservedObject:
        """Return the observation with the demand that the object is charged.

        Before a part is left out that was not admitted, the state has to be as new as the log:
        another replica may have admitted it a moment ago.
        """
        session = self._session
        promised = with_promised_demand(session.view.state, seen)
        entry = session.entry(seen.namespace, seen.key)
        is_sent = session.commands.is_pending(seen.namespace, seen.key) or (
            command_if_changed(entry, promised, WATCHED) is not None
        )
        if not is_sent or covers(promised.demand, seen.demand):
            return promised
        await session.catch_up()
        return with_promised_demand(session.view.state, seen)

    async def list_keys(self, namespace: str, keys: Collection[str]) -> ListResult:
        """List keys of a qualified namespace, linearizably. Raises ClusterError."""
        listed = await self._list(namespace)
        workloads = {
            workload.seen.key: workload for workload in listed.objects if workload.seen.key in keys
        }
        deadline = loop_time_after(LIST_READ_SECONDS)
        readable = {
            key: workload for key, workload in workloads.items() if workload.unreadable is None
        }
        observed = {
            key: await self._observe(workload, deadline) for key, workload in readable.items()
        }
        return ListResult(
            listed.version,
            {key: workload.seen.uid for key, workload in workloads.items()},
            {key: seen for key, seen in observed.items() if seen is not None},
        )

    async def _list(self, namespace: str) -> Listed[ObservedWorkload]:
        """List the objects of a namespace; none if the kind is proved to be deleted."""
        try:
            listed = await self._session.cluster.list_objects(self.resource, local_name(namespace))
        except NotServed:
            return await self._empty_list()
        return Listed(listed.version, [self.keep(workload) for workload in listed.objects])

    async def _empty_list(self) -> Listed[ObservedWorkload]:
        """Return the empty list of a deleted kind. Raises Unavailable without proof that it is."""
        where = self.resource.collection()
        try:
            async with (
                asyncio.timeout(PROOF_SECONDS),
                aclosing(self._session.cluster.watch_filtered(self.resource, self.keep)) as changes,
            ):
                async for change in changes:
                    if isinstance(change, Listed) and not change.objects:
                        return change
                    if not (isinstance(change, Interrupted) and change.absent):
                        break
        except TimeoutError:
            pass
        raise ClusterUnavailable(
            f"{where} is not served, and nothing proves that its objects are gone"
        )

    async def _send(self, workload: ObservedWorkload, *, deleted: bool) -> None:
        """Queue the command about an object unless the ledger agrees with it.

        Commands that are pending may change the ledger's entry, so the command is then queued in
        any case.
        """
        session = self._session
        if deleted:
            workload = msgspec.structs.replace(
                workload, seen=msgspec.structs.replace(workload.seen, cause=Cause.DELETED)
            )
            self._parts.discard(workload.seen.uid)
        seen = await self._observe(workload)
        if seen is None:
            return
        if session.commands.is_pending(seen.namespace, seen.key):
            await session.commands.send(command_for(seen, WATCHED))
        else:
            await self._send_if_changed(seen, WATCHED)

    async def _send_if_changed(self, seen: ObservedObject, actor: str) -> None:
        session = self._session
        command = command_if_changed(session.entry(seen.namespace, seen.key), seen, actor)
        if command is None:
            return
        await session.commands.send(command)
        if seen.cause and session.members(seen.namespace, seen.key):
            self._recheck(seen.namespace)

    async def _recount(self, listed: Listed[ObservedWorkload]) -> None:
        """Compare the ledger with all objects of the kind at one version."""
        await self._session.catch_up()
        self._invalid_objects.clear(self.prefix)
        present = await self._send_present(listed.objects)
        await objects_missing_from_list.release_missing(
            self._session, self.prefix, present, listed.version
        )
        await open_attempt_ages.start_open_attempt_ages(self._session, self._ages, self.prefix)
        await self._session.commands.flush()

    async def _send_present(self, objects: list[ObservedWorkload]) -> Present:
        """Queue the commands about listed objects; return their uids by namespace and key."""
        stride, present = CooperativeYield(), Present()
        deadline = loop_time_after(RECOUNT_READ_SECONDS)
        for workload in objects:
            present[workload.seen.namespace, workload.seen.key] = workload.seen.uid
            with self._session.failures.taking(self._kind.name, workload.metadata().full_name()):
                seen = await self._observe(workload, deadline)
                if seen is not None:
                    await self._send_if_changed(seen, RECOUNTED)
            await stride.step()
        self._parts.intersection_update(present.values())
        return present

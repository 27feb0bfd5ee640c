"""Pods: what the watch tells becomes commits, releases and, after every list, a recount."""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name, qualified
from ledger.kube.api.objects import Pod
from ledger.kube.api.ports import Change, Changed, Listed
from ledger.tasks.periodic import CooperativeYield
from webhook.context.assumed_demand import with_promised_demand
from webhook.settlement import recount
from webhook.settlement.absence_proof import ListResult
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.observation import (
    ObservedObject,
    command_for,
    command_if_changed,
    holds_uid,
)
from webhook.settlement.pod_observation import POD_KEYS, observe_pod
from webhook.settlement.recount import Present
from webhook.settlement.root_lookup import (
    LIST_READ_SECONDS,
    RECOUNT_READ_SECONDS,
    RootLookup,
    loop_time_after,
)
from webhook.settlement.settlement_session import RECOUNTED, WATCHED, SettlementSession

PODS: Final = "pods"
"""What their watch is called in readiness."""

PodObserver = Callable[[Pod, ObservedObject], None]


def _ignore(_: Pod, __: ObservedObject) -> None:
    """Hear of a pod and do nothing."""


class PodReconciler:
    """Follows the pods of one cluster."""

    def __init__(
        self, tenure: SettlementSession, ages: AttemptAges, puzzling: InvalidObjects
    ) -> None:
        self._tenure = tenure
        self._ages = ages
        self._lineage = RootLookup(tenure)
        self._terminating: dict[str, ObservedObject] = {}
        self._puzzling = puzzling

    async def take(self, change: Change[Pod], hear: PodObserver = _ignore) -> None:
        """Tell the ledger what a change of the watch means; `hear` is told of every pod."""
        if isinstance(change, Listed):
            await self._recount(change, hear)
        elif isinstance(change, Changed):
            seen = await self._see(change.object, deleted=change.deleted)
            hear(change.object, seen)
            await self._tell(seen)

    async def end_elapsed(self) -> None:
        """End what terminating pods are charged once their grace period is over."""
        now = self._tenure.now()
        for seen in [one for one in self._terminating.values() if one.grace_ends < now]:
            del self._terminating[seen.uid]
            await self._tell(msgspec.structs.replace(seen, cause=Cause.FINISHED))

    async def look_again(self, pods: list[Pod]) -> None:
        """Tell where pods count now that have not changed themselves.

        A pod that the ledger does not know may be gone since the list, so it is left alone.
        """
        stride, deadline = CooperativeYield(), loop_time_after(LIST_READ_SECONDS)
        for pod in pods:
            await stride.step()
            with self._tenure.failures.taking(PODS, pod.metadata.full_name()):
                await self._look_again(pod, deadline)

    async def _look_again(self, pod: Pod, deadline: float) -> None:
        seen = await self._sighting(pod, deadline=deadline)
        entry = self._tenure.entry(seen.namespace, seen.key)
        if holds_uid(entry, seen.uid) and not seen.cause:
            command = command_if_changed(entry, seen, WATCHED)
            if command is not None:
                await self._tenure.courier.send(command)

    def astray(self) -> list[str]:
        """Return, once, the namespaces of pods whose root could not be found: it may be later."""
        found = list(self._lineage.astray)
        self._lineage.astray.clear()
        return found

    async def look(self, namespace: str, keys: Collection[str]) -> ListResult:
        """Look for pods of a qualified namespace, linearizably. Raises ClusterError."""
        listed = await self._tenure.cluster.list_pods(local_name(namespace))
        pods = {POD_KEYS + pod.metadata.name: pod for pod in listed.objects}
        found, deadline = (
            [pods[key] for key in keys if key in pods],
            loop_time_after(LIST_READ_SECONDS),
        )
        sightings = [await self._sighting(pod, deadline=deadline) for pod in found]
        seen = {one.key: one for one in sightings}
        return ListResult(listed.version, {key: one.uid for key, one in seen.items()}, seen)

    async def _sighting(
        self, pod: Pod, *, deleted: bool = False, deadline: float = 0.0
    ) -> ObservedObject:
        """Read a pod, with its root; see `RootLookup.of_pod`."""
        tenure = self._tenure
        seen = observe_pod(pod, tenure.name, tenure.rules, tenure.now(), deleted=deleted)
        seen = await self._lineage.of_pod(seen, pod.metadata, deadline)
        return with_promised_demand(tenure.view.state, seen)

    async def _see(self, pod: Pod, *, deleted: bool, deadline: float = 0.0) -> ObservedObject:
        """Read a pod, and remember what has to be remembered about it."""
        seen = await self._sighting(pod, deleted=deleted, deadline=deadline)
        if seen.grace_ends and not seen.cause:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        self._puzzling.note(seen)
        return seen

    async def _tell(self, seen: ObservedObject) -> None:
        """Tell the ledger, unless it knows and nothing is on its way that could change that."""
        tenure = self._tenure
        if tenure.courier.is_pending(seen.namespace, seen.key) and not seen.gated:
            await tenure.courier.send(command_for(seen, WATCHED))
            return
        command = command_if_changed(tenure.entry(seen.namespace, seen.key), seen, WATCHED)
        if command is not None:
            await tenure.courier.send(command)

    async def _recount(self, listed: Listed[Pod], hear: PodObserver) -> None:
        """Compare the ledger with everything that exists at one version, and tell what differs."""
        await self._tenure.catch_up()
        self._terminating.clear()
        self._puzzling.clear(POD_KEYS)
        present = await self._tell_present(listed.objects, hear)
        await self._tell_missing(present, listed.version)
        await recount.start_open_attempt_ages(self._tenure, self._ages, POD_KEYS)
        await self._tenure.courier.flush()

    async def _tell_present(self, pods: list[Pod], hear: PodObserver) -> Present:
        """Tell what exists; return the uids by namespace and key."""
        tenure, stride = self._tenure, CooperativeYield()
        deadline = loop_time_after(RECOUNT_READ_SECONDS)
        present: Present = {}
        for pod in pods:
            meta = pod.metadata
            where = qualified(tenure.name, meta.namespace), POD_KEYS + meta.name
            present[where] = meta.uid
            with tenure.failures.taking(PODS, meta.full_name()):
                seen = await self._see(pod, deleted=False, deadline=deadline)
                hear(pod, seen)
                command = command_if_changed(tenure.entry(*where), seen, RECOUNTED)
                if command is not None:
                    await tenure.courier.send(command)
            await stride.step()
        return present

    async def _tell_missing(self, present: Present, version: int) -> None:
        """End what the ledger still counts and the list does not hold."""
        await recount.release_missing(self._tenure, POD_KEYS, present, version)

"""Pod reconciler: changes of the watch become commits and releases; each list becomes a recount."""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec

from ledger.core.model import amounts
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name, qualified
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import Pod
from ledger.tasks.periodic import CooperativeYield
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
from webhook.settlement.pod_observation import POD_KEYS, observe_counted_pod, observe_ended_pod
from webhook.settlement.resource_claims.pod_claims import PodClaims
from webhook.settlement.resource_claims.recorded_allocation import with_recorded_allocation
from webhook.settlement.resource_claims.seen_claims import has_own_claims
from webhook.settlement.root_lookup import (
    LIST_READ_SECONDS,
    RECOUNT_READ_SECONDS,
    RootLookup,
    loop_time_after,
)

PODS: Final = "pods"
"""Name of the informer of pods in readiness."""

PLACEMENTS: Final = "placements"
"""Name in readiness of what the listeners settle."""


class PodGates(Protocol):
    """The pods that wait behind a scheduling gate."""

    def relist(self) -> None:
        """Forget all pods, because all of them are about to be noted again."""
        ...

    def note(self, pod: Pod, seen: ObservedObject) -> None:
        """Take note of an observed pod, which may wait or not."""
        ...


class PodListener(Protocol):
    """A second consumer of the informer of pods."""

    async def run(self) -> None:
        """Settle until cancelled."""
        ...

    async def take(self, change: Change[Pod]) -> None:
        """Handle a change, after its commands are queued."""
        ...


class PodReconciler:
    """Reconciles the ledger with the pods of one cluster."""

    def __init__(
        self,
        session: SettlementSession,
        gates: PodGates,
        *,
        ages: AttemptAges,
        invalid_objects: InvalidObjects,
        listeners: Sequence[PodListener],
        claims: PodClaims,
    ) -> None:
        self._session = session
        self._claims = claims
        self._gates = gates
        self._ages = ages
        self._invalid_objects = invalid_objects
        self._listeners = listeners
        self._root_lookup = RootLookup(session)
        self._terminating: dict[str, ObservedObject] = {}

    async def take(self, change: Change[Pod]) -> None:
        """Queue the commands that follow from a change; then hand it to the listeners."""
        if isinstance(change, Listed):
            self._gates.relist()
            await self._recount(change)
        elif isinstance(change, Changed):
            seen = await self._see(change.object, deleted=change.deleted)
            await self._send(seen)
        for listener in self._listeners:
            with self._session.failures.taking(PLACEMENTS, "of pods"):
                await listener.take(change)

    async def end_elapsed(self) -> None:
        """Release terminating pods whose grace period is over."""
        now = self._session.now()
        for seen in [pod for pod in self._terminating.values() if pod.grace_ends < now]:
            del self._terminating[seen.uid]
            await self._send(msgspec.structs.replace(seen, cause=Cause.FINISHED))

    async def follow_claims(self) -> None:
        """Observe pods again whose resource claims changed, until cancelled."""
        while True:
            pod = await self._claims.next_due()
            with self._session.failures.taking(PODS, pod.metadata.full_name()):
                seen = await self._observe(pod)
                if self._claims.is_newest(pod) and not seen.cause:
                    self._gates.note(pod, seen)
                    await self._send(seen)

    async def recheck(self, pods: list[Pod]) -> None:
        """Queue the commands about listed pods whose charge has changed with their root.

        A pod that is not in the ledger may have been deleted since the list, so it is skipped.
        """
        stride, deadline = CooperativeYield(), loop_time_after(LIST_READ_SECONDS)
        for pod in pods:
            await stride.step()
            with self._session.failures.taking(PODS, pod.metadata.full_name()):
                seen = await self._observe(pod, deadline=deadline)
                entry = self._session.entry(seen.namespace, seen.key)
                if entry is not None and entry.holds_uid(seen.uid) and not seen.cause:
                    await self._send_if_changed(seen, WATCHED)

    def take_unresolved(self) -> list[str]:
        """Return and forget the namespaces of pods whose root could not be read."""
        namespaces = list(self._root_lookup.unresolved)
        self._root_lookup.unresolved.clear()
        return namespaces

    async def list_keys(self, namespace: str, keys: Collection[str]) -> ListResult:
        """List keys of a qualified namespace, linearizably. Raises ClusterError."""
        listed = await self._session.cluster.list_pods(local_name(namespace))
        pods = {POD_KEYS + pod.metadata.name: pod for pod in listed.objects}
        deadline = loop_time_after(LIST_READ_SECONDS)
        seen = {
            key: await self._observe(pods[key], deadline=deadline) for key in keys if key in pods
        }
        return ListResult(
            listed.version, {key: observed.uid for key, observed in seen.items()}, seen
        )

    async def _observe(
        self, pod: Pod, *, deleted: bool = False, deadline: float = 0.0
    ) -> ObservedObject:
        """Return the observation of a pod, with its root unless it has ended.

        Owners that are not cached are read until loop time `deadline`; see `RootLookup.of_pod`.
        """
        session = self._session
        ended = observe_ended_pod(pod, session.name, session.now(), deleted=deleted)
        if ended is not None:
            return ended
        seen = observe_counted_pod(pod, session.name, session.context.rules)
        seen = await self._root_lookup.of_pod(seen, pod.metadata, deadline)
        if has_own_claims(pod):
            return await self._observe_claims(pod, seen.root)
        return with_promised_demand(session.view.state, seen)

    async def _observe_claims(self, pod: Pod, root: str) -> ObservedObject:
        """Return the observation of a pod for which claims are made, as they are now.

        Before it raises a charge, or leaves out what was not admitted, the state has to be as new
        as the log: another replica may have reserved at the key of a claim, or for the pod.
        """
        session = self._session
        seen = self._with_claims(pod, root)
        promised = with_promised_demand(session.view.state, seen)
        entry = session.entry(seen.namespace, seen.key)
        charge = entry.charge if entry is not None else {}
        is_sent = command_if_changed(entry, promised, WATCHED) is not None
        is_lowered = is_sent and not amounts.covers(promised.demand, seen.demand)
        if not seen.gated and (is_lowered or not amounts.covers(charge, promised.demand)):
            await session.catch_up()
            promised = with_promised_demand(session.view.state, self._with_claims(pod, root))
        return promised

    def _with_claims(self, pod: Pod, root: str) -> ObservedObject:
        session = self._session
        seen = observe_counted_pod(pod, session.name, session.context.rules)
        seen = self._claims.charged(pod, msgspec.structs.replace(seen, root=root))
        return with_recorded_allocation(session.entry(seen.namespace, seen.key), seen)

    async def _see(
        self, pod: Pod, *, deleted: bool = False, deadline: float = 0.0
    ) -> ObservedObject:
        """Return the observation of a pod, after it was noted wherever that matters."""
        seen = await self._observe(pod, deleted=deleted, deadline=deadline)
        if seen.grace_ends and not seen.cause:
            self._terminating[seen.uid] = seen
        else:
            self._terminating.pop(seen.uid, None)
        self._invalid_objects.note(seen)
        self._gates.note(pod, seen)
        self._claims.note(pod, seen)
        return seen

    async def _send(self, seen: ObservedObject) -> None:
        """Queue the command about a pod unless the ledger agrees with it.

        Commands that are pending may change the ledger's entry, so the command is then queued in
        any case.
        """
        session = self._session
        entry = session.view.state.entry(seen.namespace, seen.key)
        command = command_if_changed(entry, seen, WATCHED)
        if command is None and not seen.gated:
            if not session.commands.is_pending(seen.namespace, seen.key):
                return
            command = command_for(seen, WATCHED)
        if command is not None:
            await session.commands.send(command)

    async def _send_if_changed(self, seen: ObservedObject, actor: str) -> None:
        """Queue the command about a pod unless the ledger agrees with it."""
        command = command_if_changed(self._session.entry(seen.namespace, seen.key), seen, actor)
        if command is not None:
            await self._session.commands.send(command)

    async def _recount(self, listed: Listed[Pod]) -> None:
        """Compare the ledger with all pods at one version, and queue what differs."""
        await self._session.catch_up()
        self._terminating.clear()
        self._invalid_objects.clear(POD_KEYS)
        self._claims.begin_list()
        present = await self._send_present(listed.objects)
        self._claims.end_list()
        await self._release_missing(present, listed.version)
        await open_attempt_ages.start_open_attempt_ages(self._session, self._ages, POD_KEYS)
        await self._session.commands.flush()

    async def _send_present(self, pods: list[Pod]) -> Present:
        """Queue the commands about listed pods; return their uids by namespace and key."""
        session, stride = self._session, CooperativeYield()
        deadline = loop_time_after(RECOUNT_READ_SECONDS)
        present: Present = {}
        for pod in pods:
            meta = pod.metadata
            present[qualified(session.name, meta.namespace), POD_KEYS + meta.name] = meta.uid
            with session.failures.taking(PODS, meta.full_name()):
                seen = await self._see(pod, deadline=deadline)
                await self._send_if_changed(seen, RECOUNTED)
            await stride.step()
        return present

    async def _release_missing(self, present: Present, version: int) -> None:
        """Release the pods that the ledger counts and a list at `version` does not hold."""
        await objects_missing_from_list.release_missing(self._session, POD_KEYS, present, version)

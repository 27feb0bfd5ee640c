"""Pod claims: the pods for which claims are made, and what they are charged for these claims.

A pod is observed again when one of its claims changes, because the pod itself does not change then.
"""

import asyncio

import msgspec

from ledger.core.model.events import AnyEvent, Committed, Observed
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand import Demand
from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.context.admitted_demand import NOTHING_AWAITED
from webhook.context.resource_claims.extended_resources import (
    NOT_SERVED,
    ServedResources,
    with_served,
)
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.observation_commands import ObservedObject
from webhook.settlement.pod_observation import POD_KEYS
from webhook.settlement.resource_claims.claims_by_owner import ClaimsByOwner
from webhook.settlement.resource_claims.seen_claims import (
    has_own_claims,
    names_claim,
    owning_pod,
)
from webhook.settlement.resource_claims.settled_claim_source import ClaimSource


class PodClaims:
    """The counted pods of one session for which claims are made."""

    def __init__(
        self, session: SettlementSession, claims: ClaimsByOwner, *, source: ClaimSource
    ) -> None:
        self.ended: dict[str, None] = {}
        """Uids of pods that no longer count; their claims may outlive them."""
        self.renamed: dict[str, None] = {}
        """Uids of pods whose status names other claims than before."""
        self._session = session
        self._claims = claims
        self._source = source
        self._pods: dict[str, Pod] = {}
        self._missing: set[str] = set()
        self._due: dict[str, None] = {}
        self._wake = asyncio.Event()

    def own(self, claim: ResourceClaim) -> bool:
        """Return whether a claim belongs to a pod that counts."""
        owner = owning_pod(claim)
        pod = self._pods.get(owner.uid) if owner is not None else None
        return pod is not None and names_claim(pod, claim)

    def begin_list(self) -> None:
        """Take note that all pods are about to be noted again."""
        self._missing = set(self._pods)

    def end_list(self) -> None:
        """Forget the pods that the list did not have."""
        for uid in self._missing:
            if self._pods.pop(uid, None) is not None:
                self.ended[uid] = None
        self._missing.clear()

    def note(self, pod: Pod, seen: ObservedObject) -> None:
        """Remember a pod for which claims are made; forget it once it no longer counts."""
        self._missing.discard(seen.uid)
        if not seen.cause and has_own_claims(pod):
            self.ended.pop(seen.uid, None)
            before = self._pods.get(seen.uid)
            self._pods[seen.uid] = pod
            if before is not None and _named(before) != _named(pod):
                self.renamed[seen.uid] = None
        elif self._pods.pop(seen.uid, None) is not None:
            self.ended[seen.uid] = None

    def is_newest(self, pod: Pod) -> bool:
        """Return whether a pod counts and no later version of it was noted."""
        return self._pods.get(pod.metadata.uid) is pod

    def observe_again(self, pod: str) -> None:
        """Have the pod of this uid observed again, because one of its claims has changed."""
        if pod in self._pods:
            self._due[pod] = None
            self._wake.set()

    async def next_due(self) -> Pod:
        """Return the next pod to observe again; wait until there is one."""
        while True:
            while self._due:
                uid = next(iter(self._due))
                del self._due[uid]
                if uid in self._pods:
                    return self._pods[uid]
            self._wake.clear()
            await self._wake.wait()

    def follow(self, event: AnyEvent) -> None:
        """Observe a pod again if the ledger stored other devices than its claims have now.

        Two observations of one pod may be on their way at the same time, the older one last.
        """
        if not isinstance(event, Committed | Observed) or not event.key.startswith(POD_KEYS):
            return
        pod = self._pods.get(event.uid)
        if (
            pod is not None
            and self._claims.listed
            and event.devices != self._source.devices_of_pod(pod)
        ):
            self.observe_again(event.uid)

    def charged(self, pod: Pod, seen: ObservedObject) -> ObservedObject:
        """Return the observation of a counted pod with the devices of its claims.

        While no list has shown the claims, the devices are unknown and their amounts stay.
        """
        if not self._claims.listed:
            return self._as_recorded(seen)
        demand = with_served(
            pod,
            Demand(seen.demand, assumed=seen.assumed),
            self._session.context.rules,
            NOT_SERVED if seen.problem else self._served(pod),
        )
        return msgspec.structs.replace(
            seen,
            demand=demand.amounts,
            assumed=demand.assumed,
            devices=self._source.devices_of_pod(pod),
        )

    def _as_recorded(self, seen: ObservedObject) -> ObservedObject:
        """Return the observation with the recorded amounts of a pod that has devices."""
        entry = self._session.entry(seen.namespace, seen.key)
        stored = entry.committed if entry is not None else None
        if stored is None or stored.uid != seen.uid or not stored.devices:
            return seen
        return msgspec.structs.replace(
            seen, demand=stored.demand, assumed=(), awaited=NOTHING_AWAITED
        )

    def _served(self, pod: Pod) -> ServedResources:
        """Return the allocation of the claim for the extended resources of a pod."""
        meta, status = pod.metadata, pod.status.extended_resource_claim_status
        if status is None:
            return NOT_SERVED
        claim = self._claims.named(meta.namespace, status.resource_claim_name, meta.uid)
        if claim is None or self._source.has_own_entry(claim):
            return NOT_SERVED
        given = self._source.allocation(claim)
        if given is None:
            return NOT_SERVED
        names = {served.resource_name for served in status.request_mappings or ()}
        every = self._session.context.rules.of_cards
        return ServedResources(frozenset(names) or every, given.amounts)


def _named(pod: Pod) -> tuple[object, ...]:
    """Return the claims that the status of a pod names."""
    return pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status

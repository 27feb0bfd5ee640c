"""Resource claim reconciler: changes of claims become charges of their pods, or of their own keys.

A claim that a pod controls is charged with the pod, unless the ledger has it at its own key. If the
pod's status does not name it within `settle_seconds`, it is charged at its own key, because it
exists. Every other claim is charged at its own key.
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import Final

import structlog

from ledger.core.model.events import AnyEvent, Committed, Observed, Raised, Released, Reserved
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed
from ledger.kube.requests.pod_traits import label_traits
from ledger.kube.resource_claims.dra_objects import ResourceClaim
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
from webhook.settlement.resource_claims.claim_observation import (
    identity_of,
    observe_claim,
    observe_deleted_claim,
)
from webhook.settlement.resource_claims.claims_by_owner import ClaimsByOwner
from webhook.settlement.resource_claims.pod_claims import PodClaims
from webhook.settlement.resource_claims.recorded_allocation import with_recorded_allocation
from webhook.settlement.resource_claims.seen_claims import (
    CLAIM_KEYS,
    SeenClaim,
    charge_basis,
    owning_pod,
    seen_claim,
)
from webhook.settlement.resource_claims.settled_claim_source import ClaimSource
from webhook.settlement.resource_claims.unused_claims import UnusedClaims

RESOURCE_CLAIMS: Final = CLAIMS.name
"""Name of the informer of resource claims in readiness."""

_log: Final = structlog.get_logger("webhook")


class ResourceClaimReconciler:
    """Reconciles the ledger with the resource claims of one cluster."""

    def __init__(
        self,
        session: SettlementSession,
        source: ClaimSource,
        *,
        ages: AttemptAges,
        invalid_objects: InvalidObjects,
    ) -> None:
        self.claims = ClaimsByOwner(source)
        self.pods = PodClaims(session, self.claims, source=source)
        self.unused = UnusedClaims(source.has_own_entry)
        self._session = session
        self._source = source
        self._ages = ages
        self._invalid_objects = invalid_objects
        self._unnamed: dict[str, float] = {}
        self._due: dict[str, None] = {}
        self._absent = False

    @property
    def unnamed(self) -> int:
        """The number of claims that a pod controls and no pod names yet."""
        return len(self._unnamed)

    async def take(self, change: Change[SeenClaim]) -> None:
        """Queue the commands that follow from a change of the watch."""
        if isinstance(change, Interrupted):
            self._absent = change.absent
        elif isinstance(change, Listed):
            if self._absent and not change.objects:
                self._lose_all()
            else:
                await self._recount(change)
            self._absent = False
        else:
            self.claims.listed = True  # an empty list before was a real one
            if isinstance(change, Changed):
                await self._take(change.object, deleted=change.deleted)

    def follow(self, event: AnyEvent) -> None:
        """Take note of an event: it may move a claim from its pod to its own key, or back."""
        self.pods.follow(event)
        if isinstance(event, Reserved | Raised | Committed | Observed | Released):
            claim = self.claims.of(event.uid) if event.key.startswith(CLAIM_KEYS) else None
            if claim is not None and isinstance(event, Reserved | Released):
                self._due[event.uid] = None
            self._observe_pods_again(claim)

    async def settle(self, *, pods_current: bool) -> None:
        """Observe claims again whose charge moved, and those that no pod has named in time.

        While the pods are not `pods_current`, claims wait for the pods that may name them.
        """
        while self._due:
            uid = next(iter(self._due))
            del self._due[uid]
            claim = self.claims.of(uid)
            if claim is not None:
                with self._session.failures.taking(RESOURCE_CLAIMS, claim.metadata.full_name()):
                    await self._place(claim, WATCHED)
        if not pods_current:
            return
        self._note_claims_that_lost_their_pod()
        for claim in list(self._overdue()):
            with self._session.failures.taking(RESOURCE_CLAIMS, claim.metadata.full_name()):
                await self._charge_alone(claim)

    async def list_keys(self, namespace: str, keys: Collection[str]) -> ListResult:
        """List keys of a qualified namespace, linearizably. Raises ClusterError.

        An API server that does not serve claims proves nothing, because another one may serve them.
        """
        listed = await self._session.cluster.list_objects(CLAIMS, local_name(namespace))
        claims = {
            CLAIM_KEYS + stored.metadata.name: seen_claim(stored) for stored in listed.objects
        }
        wanted = {key: claims[key] for key in keys if key in claims}
        observed = {
            key: self._observe(seen.claim)
            for key, seen in wanted.items()
            if seen.unreadable is None and self.claims.charged_alone(seen.claim)
        }
        return ListResult(
            listed.version,
            {key: seen.claim.metadata.uid for key, seen in wanted.items()},
            observed,
        )

    async def _take(self, seen: SeenClaim, *, deleted: bool) -> None:
        claim, session = seen.claim, self._session
        if deleted:
            await self._end(claim)
            return
        if seen.unreadable is not None:
            raise seen.unreadable
        before = self.claims.put(claim)
        self.unused.note(claim, session.now(), first=before is None)
        if before is None or charge_basis(before) != charge_basis(claim):
            self._observe_pods_again(before, claim)
        await self._place(claim, WATCHED)

    async def _end(self, claim: ResourceClaim) -> None:
        """Forget a deleted claim and release its charge."""
        uid = claim.metadata.uid
        self._observe_pods_again(self.claims.of(uid), claim)
        self.claims.drop(uid)
        self.unused.forget(uid)
        self._unnamed.pop(uid, None)
        ended = observe_deleted_claim(claim, self._session.name)
        self._invalid_objects.note(ended)
        await self._send(ended)

    async def _place(self, claim: ResourceClaim, actor: str) -> None:
        """Charge a claim at its own key unless it belongs to a pod, which then has to name it."""
        uid = claim.metadata.uid
        if self.claims.charged_alone(claim):
            self._unnamed.pop(uid, None)
            seen = self._observe(claim)
            self._invalid_objects.note(seen)
            if actor == RECOUNTED:
                await self._send_if_changed(seen, actor)
            else:
                await self._send(seen)
        elif not self.pods.own(claim):
            self._unnamed.setdefault(uid, asyncio.get_running_loop().time())
        else:
            self._unnamed.pop(uid, None)

    async def _charge_alone(self, claim: ResourceClaim) -> None:
        """Charge a claim at its own key that no pod names."""
        seen = self._observe(claim)
        self._invalid_objects.note(seen)
        if not seen.demand and not seen.devices:
            return
        self.claims.charge_alone(claim)
        self._session.count("resource_claims_alone_total")
        _log.warning("resource_claim_charged_alone", namespace=seen.namespace, key=seen.key)
        await self._send(seen)

    def _overdue(self) -> Iterator[ResourceClaim]:
        """Yield the claims that no pod has named in time, and forget those that a pod names."""
        bound = asyncio.get_running_loop().time() - self._session.settings.settle_seconds
        for uid, since in list(self._unnamed.items()):
            claim = self.claims.of(uid)
            if claim is None or self.pods.own(claim) or since <= bound:
                del self._unnamed[uid]
            if claim is not None and since <= bound and not self.pods.own(claim):
                yield claim

    def _note_claims_that_lost_their_pod(self) -> None:
        """Have the claims wait whose pods no longer count, or do not name them any more.

        They are deleted soon, or charged by themselves.
        """
        now = asyncio.get_running_loop().time()
        for pod in (*self.pods.ended, *self.pods.renamed):
            for claim in self.claims.owned_by(pod):
                if not self.claims.charged_alone(claim) and not self.pods.own(claim):
                    self._unnamed.setdefault(claim.metadata.uid, now)
        self.pods.ended.clear()
        self.pods.renamed.clear()

    def _observe(self, claim: ResourceClaim) -> ObservedObject:
        """Return the observation of a claim that is charged at its own key."""
        session = self._session
        source, labels = self._source, session.context.rules.labels
        seen = observe_claim(
            claim,
            session.name,
            source.of_claim(claim),
            given=source.allocation(claim),
            traits=label_traits(claim.metadata, labels),
        )
        seen = with_recorded_allocation(session.entry(seen.namespace, seen.key), seen)
        return with_promised_demand(session.view.state, seen)

    def _observe_pods_again(self, *claims: ResourceClaim | None) -> None:
        """Observe the pods again that control these claims."""
        for claim in claims:
            owner = owning_pod(claim) if claim is not None else None
            if owner is not None:
                self.pods.observe_again(owner.uid)

    async def _send(self, seen: ObservedObject) -> None:
        """Queue the command about a claim unless the ledger agrees with it.

        Commands that are pending may change the ledger's entry, so the command is then queued in
        any case.
        """
        session = self._session
        if session.commands.is_pending(seen.namespace, seen.key):
            await session.commands.send(command_for(seen, WATCHED))
        else:
            await self._send_if_changed(seen, WATCHED)

    async def _send_if_changed(self, seen: ObservedObject, actor: str) -> None:
        command = command_if_changed(self._session.entry(seen.namespace, seen.key), seen, actor)
        if command is not None:
            await self._session.commands.send(command)

    def _lose_all(self) -> None:
        """Forget all claims, because the API server does not serve them; their charges stay."""
        self.claims.lose()
        self.unused.keep(set())
        self._unnamed.clear()

    async def _recount(self, listed: Listed[SeenClaim]) -> None:
        """Compare the ledger with all claims at one version."""
        session = self._session
        await session.catch_up()
        self._invalid_objects.clear(CLAIM_KEYS)
        self._replace_all([seen.claim for seen in listed.objects if seen.unreadable is None])
        present = await self._send_present(listed.objects)
        await objects_missing_from_list.release_missing(
            session, CLAIM_KEYS, present, listed.version
        )
        await open_attempt_ages.start_open_attempt_ages(session, self._ages, CLAIM_KEYS)
        await session.commands.flush()

    def _replace_all(self, claims: list[ResourceClaim]) -> None:
        """Replace all known claims, and observe the pods again whose claims differ."""
        before = {claim.metadata.uid: claim for claim in self.claims.owned()}
        self.claims.relist(claims)
        uids = {claim.metadata.uid for claim in claims}
        self.unused.keep(uids)
        for uid in [uid for uid in self._unnamed if uid not in uids]:
            del self._unnamed[uid]
        for claim in claims:
            self.unused.note(claim, self._session.now(), first=True)
            known = before.pop(claim.metadata.uid, None)
            if known is None or charge_basis(known) != charge_basis(claim):
                self._observe_pods_again(known, claim)
        self._observe_pods_again(*before.values())

    async def _send_present(self, claims: list[SeenClaim]) -> Present:
        """Queue the commands about listed claims; return their uids by namespace and key."""
        stride, present = CooperativeYield(), Present()
        for seen in claims:
            meta = seen.claim.metadata
            with self._session.failures.taking(RESOURCE_CLAIMS, meta.full_name()):
                where = identity_of(seen.claim, self._session.name)
                present[where.namespace, where.key] = meta.uid
                if seen.unreadable is not None:
                    raise seen.unreadable
                await self._place(seen.claim, RECOUNTED)
            await stride.step()
        return present

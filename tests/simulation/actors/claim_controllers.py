"""Claim controllers: kube-controller-manager and kube-scheduler, as far as claims concern them.

They generate the claims of pods and write their names into the status of the pods, allocate claims
of pods, clear the allocations of claims without pods, and delete the claims of pods that are gone.
"""

import asyncio
from typing import Final

import msgspec

from ledger.kube.api.objects import Pod, PodResourceClaimStatus, Workload
from simulation.actors.admitted_writes import AdmittedWrites, WriteMode, now
from simulation.actors.claim_requests import ClaimRequests
from simulation.model import resource_claims
from simulation.model.apiserver import counts
from simulation.model.operations import Ending

PASS_SECONDS_MAX: Final = 1.5
"""Longest pause between two looks at everything."""

CONTROLLER: Final = "system:kube-controller-manager"

STORED_SHARE: Final = 0.8
ALLOCATED_SHARE: Final = 0.3
"""Share of the looks in which a claim is allocated."""

CLEARED_SHARE: Final = 0.03
"""Share of the looks in which a claim of a pod loses its allocation."""

_ENDINGS: Final = tuple(ending for ending in Ending if ending is not Ending.BEYOND)
_PICKS: Final = 1_000


class ClaimControllers:
    """Acts on the claims of one cluster. While `working` is False, nothing new is made."""

    def __init__(self, writing: AdmittedWrites, requests: ClaimRequests) -> None:
        self.working = True
        self._server = writing.server
        self._source = writing.source
        self._requests = requests

    async def run(self) -> None:
        """Act until cancelled."""
        while True:
            await asyncio.sleep(self._source.random() * PASS_SECONDS_MAX)
            self._clean()
            for pod in self._pods():
                self._name(pod)
            if self.working:
                self._allocate()
                for pod in self._pods():
                    await self._generate(pod)

    def _clean(self) -> None:
        """Take the devices of claims that no pod uses, and delete those of pods that are gone."""
        pods = self._pods()
        used = {name for pod in pods for name in self._used(pod)}
        living = {pod.metadata.uid for pod in pods}
        for claim in self._server.claims():
            owner, name = claim.metadata.controller(), _name(claim)
            if name not in used and resource_claims.allocated(claim):
                self._set_status(claim, {})
            elif owner is not None and owner.uid not in living:
                self._server.remove(claim)

    def _name(self, pod: Pod) -> None:
        """Write the name of a pod's generated claim into its status."""
        claims = [_name(claim)[1] for claim in self._claims_of(pod)]
        before = self._named(pod)
        if claims and before not in claims:
            statuses = [PodResourceClaimStatus(resource_claims.GENERATED, claims[0])]
            status = msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
            named = msgspec.structs.replace(pod, status=status)
            self._server.write(named, pod.metadata.version())

    async def _generate(self, pod: Pod) -> None:
        """Make the claim of a pod's template, unless it exists."""
        if not _is_generated(pod) or self._claims_of(pod):
            return
        ending = Ending.STORED
        if self._source.random() > STORED_SHARE:
            ending = self._source.choice(_ENDINGS)
        await self._requests.generate(pod, WriteMode(CONTROLLER, ending, self._source.random()))

    def _allocate(self) -> None:
        used = {name for pod in self._pods() for name in self._used(pod)}
        for claim in self._server.claims():
            if _name(claim) not in used or not self._server.supplies:
                continue
            chance = self._source.random()
            if resource_claims.allocated(claim):
                if chance < CLEARED_SHARE:
                    self._set_status(claim, {})
            elif chance < ALLOCATED_SHARE:
                pick, supply = self._source.randrange(_PICKS), self._server.supplies[-1]
                given = resource_claims.allocation(claim.spec or {}, supply, pick)
                if given is not None:
                    self._set_status(claim, {"allocation": given})

    def _set_status(self, claim: Workload, status: resource_claims.Manifest) -> None:
        changed = msgspec.structs.replace(claim, status=status)
        self._server.write(changed, claim.metadata.version())

    def _pods(self) -> list[Pod]:
        """Return the pods with claims that count, in order."""
        pods = self._server.pods.objects
        return [
            pods[name]
            for name in sorted(pods)
            if pods[name].spec.resource_claims and counts(pods[name], now())
        ]

    def _claims_of(self, pod: Pod) -> list[Workload]:
        return [
            claim
            for claim in self._server.claims()
            if (owner := claim.metadata.controller()) and owner.uid == pod.metadata.uid
        ]

    def _used(self, pod: Pod) -> list[tuple[str, str]]:
        """Return the claims that a pod uses."""
        names = [
            self._named(pod),
            *(use.resource_claim_name for use in pod.spec.resource_claims or ()),
        ]
        return [(pod.metadata.namespace, name) for name in names if name]

    def _named(self, pod: Pod) -> str:
        statuses = pod.status.resource_claim_statuses or ()
        return next((status.resource_claim_name for status in statuses), "")


def _name(claim: Workload) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name


def _is_generated(pod: Pod) -> bool:
    return any(use.resource_claim_template_name for use in pod.spec.resource_claims or ())

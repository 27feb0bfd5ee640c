"""Claim requests: resource claims are posted, generated and deleted, and what they select from."""

import asyncio

import msgspec

from ledger.kube.api.api_resources import CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_SLICES
from ledger.kube.api.objects import Pod, Workload
from simulation.actors.admitted_writes import (
    REFUSED_BY_OTHERS,
    AdmittedWrites,
    Review,
    WriteMode,
    WriteOutcome,
)
from simulation.model import resource_claims
from simulation.model.apiserver import Conflict
from simulation.model.operations import CreateClaim, DeleteClaim, SetSlice, SetTemplate
from simulation.model.settings import USERS


class ClaimRequests:
    """Performs the operations of a script that are about resource claims."""

    def __init__(self, writing: AdmittedWrites) -> None:
        self._writing = writing
        self._server = writing.server

    async def create(self, operation: CreateClaim) -> None:
        """Post a claim, and again when that fails."""
        manner = WriteMode(f"{USERS}of-claims", operation.ending, operation.late)
        for _ in range(operation.retries + 1):
            spec = resource_claims.claim_spec(operation.memory, operation.count)
            uid = self._server.fresh_uid()
            claim = resource_claims.claim_of(
                operation.namespace, operation.name, uid, spec, operation.app
            )
            if operation.unreviewed:
                outcome = self._post_unreviewed(claim)
            else:
                outcome = await self.post(claim, manner)
            if outcome is WriteOutcome.DONE:
                return
            if manner.ending not in REFUSED_BY_OTHERS:
                manner = msgspec.structs.replace(manner, ending=manner.ending.STORED)
            await asyncio.sleep(self._writing.source.random())

    async def generate(self, pod: Pod, manner: WriteMode) -> None:
        """Post the claim of a pod's template, if that exists."""
        [template, *_] = (
            each.resource_claim_template_name for each in pod.spec.resource_claims or ()
        )
        templates = self._server.others[CLAIM_TEMPLATES.name].objects
        stored = templates.get((pod.metadata.namespace, template))
        if stored is not None and stored.spec is not None:
            uid = self._server.fresh_uid()
            await self.post(
                resource_claims.generated_claim(pod, uid, stored.spec["spec"]), manner, of_pod=True
            )

    async def post(
        self, claim: Workload, manner: WriteMode, *, of_pod: bool = False
    ) -> WriteOutcome:
        """Post a claim once; one that is generated `of_pod` may count with its pod."""
        writing = self._writing
        review = await writing.reviewed(
            writing.request("CREATE", claim, None, manner), manner.ending
        )
        if review is Review.REFUSED:
            return WriteOutcome.REFUSED
        if of_pod and review is Review.PASSED:
            self._server.of_pods.add(claim.metadata.uid)
            admitted = False
        else:
            owner = claim.metadata.controller()
            self._server.apart.add(owner.uid if owner is not None else "")
            admitted = writing.admitted(review, claim.metadata.namespace)
        return await writing.store(claim, 0, manner, reviewed=admitted)

    def delete(self, operation: DeleteClaim) -> None:
        """Delete a claim that has no allocation, as others are kept by their finalizer."""
        claims = [each for each in self._server.claims() if not resource_claims.allocated(each)]
        if claims:
            self._server.remove(claims[operation.pick % len(claims)])

    def set_template(self, operation: SetTemplate) -> None:
        """Replace a template, or delete it."""
        name, namespace = operation.name, operation.namespace
        self._server.drop(CLAIM_TEMPLATES, name, namespace)
        if operation.memory is not None:
            spec = {"spec": resource_claims.claim_spec(operation.memory)}
            self._server.apply(CLAIM_TEMPLATES, name, spec, namespace)

    def set_slice(self, operation: SetSlice) -> None:
        """Write the slice of a node, in the next generation of its pool."""
        server = self._server
        if ("", resource_claims.CLASS) not in server.others[DEVICE_CLASSES.name].objects:
            server.apply(DEVICE_CLASSES, resource_claims.CLASS, resource_claims.class_spec())
        stored = server.others[RESOURCE_SLICES.name].objects.get(("", operation.node))
        generation = stored.spec["pool"]["generation"] + 1 if stored and stored.spec else 1
        spec = resource_claims.slice_spec(operation.node, operation.cards, generation)
        server.set_slice(operation.node, spec)

    def _post_unreviewed(self, claim: Workload) -> WriteOutcome:
        try:
            self._server.write(claim, 0, reviewed=False)
        except Conflict:
            return WriteOutcome.TAKEN
        return WriteOutcome.DONE

"""Claim checks: the resource claims of pods and of pod templates, before their demand is computed.

A check reads the templates that a review needs. It refuses claims that can never be allocated,
device classes that cannot be charged and generated claims of other pods. A missing template is a
warning or a denial, by policy. If a template cannot be read, the request is refused for now.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod, PodResourceClaim
from ledger.kube.api.quoting import shown
from ledger.kube.resource_claims.dra_objects import ClaimSpec
from webhook.api.admission_review import AdmissionRequest
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.resource_claims.claim_denials import (
    claim_field,
    missing_template_denial,
    of_template,
    other_pod_denial,
    unmapped_denial,
    unmapped_message,
)
from webhook.context.resource_claims.claim_index import place_of
from webhook.context.resource_claims.claim_store import ClaimStore
from webhook.context.resource_claims.reviewed_pods import ReviewedPod

WARNINGS_MAX: Final = 8
"""Most warnings about the claims of one object."""


class ClaimsChecked(msgspec.Struct, frozen=True):
    """The result: a denial of the pod at an index, or warnings.

    `specs` are those of the last pod's templates, by the names of its claims. They are those of the
    demand if that is computed before the next await.
    """

    denial: Denial | None = None
    index: int = 0
    warnings: tuple[str, ...] = ()
    specs: Mapping[str, ClaimSpec] = {}


class ClaimChecks:
    """Checks the claims of pods in one cluster."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store

    async def check(
        self, namespace: str, pods: Sequence[Pod], policy: NamespacePolicy, until: float
    ) -> ClaimsChecked:
        """Check the claims of pods, or of pods of templates, by loop time `until`."""
        names = [
            named.resource_claim_template_name
            for pod in pods
            for named in pod.spec.resource_claims or ()
            if named.resource_claim_template_name
        ]
        denial = await self._store.prepare(namespace, names, until) if names else None
        if denial is None:
            denial = await self._store.read_named(namespace, _claims_by_name(pods), until)
        if denial is not None:
            return ClaimsChecked(denial)
        warnings: dict[str, None] = {}
        for index, pod in enumerate(pods):
            for number, named in enumerate(pod.spec.resource_claims or ()):
                checked = self._claim(namespace, pod, number, named, policy)
                if isinstance(checked, Denial):
                    return ClaimsChecked(checked, index)
                warnings.update(dict.fromkeys(checked))
        specs = self._specs(namespace, pods[-1]) if pods else {}
        return ClaimsChecked(warnings=tuple(warnings)[:WARNINGS_MAX], specs=specs)

    def _specs(self, namespace: str, pod: Pod) -> Mapping[str, ClaimSpec]:
        specs = {}
        for named in pod.spec.resource_claims or ():
            template = named.resource_claim_template_name
            spec = self._store.templates.get(namespace, template) if template else None
            if spec is not None:
                specs[named.name] = spec
        return specs

    async def prepare_stored(self, pod: Pod, until: float) -> Denial | None:
        """Read the claims and templates of a stored pod, by loop time `until`."""
        claims = pod.spec.resource_claims or ()
        names = [named.resource_claim_template_name for named in claims]
        denial = await self._store.read_claims(pod, until)
        if denial is None:
            namespace = pod.metadata.namespace
            denial = await self._store.prepare(namespace, list(filter(None, names)), until)
        return denial

    def remember(self, pod: Pod, checked: ClaimsChecked, amounts: Amounts) -> None:
        """Remember a pod that was charged these amounts, for the reviews of its claims."""
        self._store.reviewed_pods.note(ReviewedPod(pod, checked.specs, amounts))

    def _claim(
        self,
        namespace: str,
        pod: Pod,
        number: int,
        named: PodResourceClaim,
        policy: NamespacePolicy,
    ) -> Denial | tuple[str, ...]:
        """Return the denial of one claim of a pod, or its warnings."""
        template = named.resource_claim_template_name
        if not template:
            return self._by_name(namespace, pod, number, named.resource_claim_name) or ()
        spec = self._store.templates.get(namespace, template)
        if spec is None:
            return self._missing(number, template, policy)
        bound = self._store.bound(spec)
        if isinstance(bound, Denial):
            return of_template(bound, number, template)
        where = f"ResourceClaimTemplate {shown(template)}"
        if not bound.unmapped:
            return tuple(f"{where}: {text}" for text in bound.warnings)
        if policy.unmapped_device_classes == "deny":
            return unmapped_denial(claim_field(number), bound.unmapped)
        texts = (unmapped_message(bound.unmapped), *bound.warnings)
        return tuple(f"{where}: {text}" for text in texts)

    def _missing(
        self, number: int, template: str, policy: NamespacePolicy
    ) -> Denial | tuple[str, ...]:
        if not self._store.templates.is_served:
            return ("resource.k8s.io/v1 is not served, so resource claims are not charged",)
        if policy.missing_claim_templates == "deny":
            return missing_template_denial(number, template)
        return (
            f"ResourceClaimTemplate {shown(template)} does not exist: its claim is charged when it"
            " is created, and may be refused then",
        )

    def _by_name(self, namespace: str, pod: Pod, number: int, name: str) -> Denial | None:
        """Return the denial of a claim by name that was generated for another pod, or None."""
        claim = self._store.claims.of_name(namespace, name)
        place = place_of(claim) if claim is not None else None
        if claim is None or place is None or place[0] == pod.metadata.uid:
            return None
        owner = claim.metadata.controller()
        if owner is None or self._store.has_own_entry(claim):
            return None
        return other_pod_denial(number, name, owner.name)


def _claims_by_name(pods: Sequence[Pod]) -> dict[str, None]:
    """Return the names of the claims that pods use by name, each once."""
    return {
        named.resource_claim_name: None
        for pod in pods
        for named in pod.spec.resource_claims or ()
        if named.resource_claim_name
    }


def placed_pod(pod: Pod, request: AdmissionRequest) -> Pod:
    """Return a pod with the namespace of its request, in which its templates of claims are."""
    meta = pod.metadata
    if not pod.spec.resource_claims or meta.namespace == request.namespace or not request.namespace:
        return pod
    metadata = msgspec.structs.replace(meta, namespace=request.namespace)
    return msgspec.structs.replace(pod, metadata=metadata)

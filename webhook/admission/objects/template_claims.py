"""Template claims: the resource claims in the pod templates of a workload, before its envelope.

A workload is checked as its pods would be. An update that leaves the claims of its templates as
they are is never refused for them, because the templates and classes that they name may have
changed since. So labels and finalizers can be written at any time.
"""

from typing import Final

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import PodResourceClaim, Workload
from webhook.admission.claim_checks import ClaimChecks
from webhook.api.admission_review import AdmissionRequest
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.object_values import InvalidObject
from webhook.kinds.pod_templates import Template, templates_of

_NO_WARNINGS: Final[tuple[str, ...]] = ()


class TemplateClaims:
    """Checks the claims of workloads in one cluster."""

    def __init__(self, checks: ClaimChecks) -> None:
        self._checks = checks

    async def check(
        self,
        request: AdmissionRequest,
        objects: tuple[WorkloadKind, Workload, Workload | None],
        policy: NamespacePolicy,
        until: float,
    ) -> Denial | tuple[str, ...]:
        """Return the denial of a workload for its claims, or the warnings, by loop time `until`.

        `objects` are its kind, the new object and the stored one.
        """
        kind, new, old = objects
        templates = _with_claims(kind, new)
        if not templates:
            return _NO_WARNINGS
        pods = [template.pod for template in templates]
        namespace = request.namespace or new.metadata.namespace
        checked = await self._checks.check(namespace, pods, policy, until)
        if old is not None and _claims_of(templates) == _claims_of(_with_claims(kind, old)):
            return _NO_WARNINGS
        if checked.denial is not None:
            return templates[checked.index].refused(checked.denial)
        return checked.warnings


def _with_claims(kind: WorkloadKind, workload: Workload) -> list[Template]:
    """Return the templates with claims; none for an invalid object, which its envelope refuses."""
    try:
        return [item for item in templates_of(kind, workload) if item.pod.spec.resource_claims]
    except InvalidObject:
        return []


def _claims_of(templates: list[Template]) -> list[tuple[str, list[PodResourceClaim] | None]]:
    return [(template.field, template.pod.spec.resource_claims) for template in templates]

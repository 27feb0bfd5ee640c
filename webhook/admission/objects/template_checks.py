"""Template checks: a workload is refused if the pods of one of its templates would be refused."""

from contextlib import suppress

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Workload
from ledger.kube.api.quoting import shown
from ledger.kube.requests.demand_rules import DemandRules
from webhook.admission import pod_checks
from webhook.admission.reserved_annotations import changed_protected_field, protected_field_denial
from webhook.context.admission_settings import AdmissionSettings
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.object_values import InvalidObject
from webhook.kinds.pod_templates import Template, templates_of


def template_denial(
    kind: WorkloadKind,
    workload: Workload,
    rules: DemandRules,
    settings: AdmissionSettings,
    username: str,
) -> Denial | None:
    """Return the denial of a template whose pods would be refused, None if all are valid.

    A template that cannot be read is refused for its envelope.
    """
    with suppress(InvalidObject):
        for template in templates_of(kind, workload):
            denial = _pod_denial(template, rules, settings, username)
            if denial is not None:
                return template.refused(denial)
    return None


def _pod_denial(
    template: Template, rules: DemandRules, settings: AdmissionSettings, username: str
) -> Denial | None:
    field = changed_protected_field(template.pod.metadata, None)
    if field:
        return protected_field_denial(field, shown(username))
    return pod_checks.pod_denial(template.pod, None, rules=rules, settings=settings)

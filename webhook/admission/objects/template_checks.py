"""Templates: what no pod made from one would be allowed, refused before there is any pod."""

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Workload
from ledger.kube.requests.container_requests import shown
from ledger.kube.requests.demand_rules import DemandRules
from webhook.admission import admission_denials
from webhook.admission.protected_annotations import changed_protected_field, protected_field_denial
from webhook.api.admission_settings import AdmissionSettings
from webhook.kinds.schema import WorkloadKind
from webhook.kinds.templates import Template, templates_of


def refused(
    kind: WorkloadKind,
    workload: Workload,
    rules: DemandRules,
    policy: AdmissionSettings,
    username: str,
) -> Denial | None:
    """Return why pods of an object would be refused, which was read and understood before."""
    for template in templates_of(kind, workload):
        denial = _refused(template, rules, policy, username)
        if denial is not None:
            return template.refused(denial)
    return None


def _refused(
    template: Template, rules: DemandRules, policy: AdmissionSettings, username: str
) -> Denial | None:
    field = changed_protected_field(template.pod.metadata, None)
    if field:
        return protected_field_denial(field, shown(username))
    denial = admission_denials.placement_denial(template.pod, None, rules)
    if denial is None and not policy.allow_privileged:
        denial = admission_denials.privileged_denial(template.pod, None, rules)
    return denial or admission_denials.assigned_node_denial(template.pod, rules, policy.schedulers)

"""Stand-in until ledger.kube.pod_traits exists."""

from ledger.core.traits import text_of
from ledger.kube.objects import ObjectMeta, PodSpec


def traits_of_template(meta: ObjectMeta, spec: PodSpec, root_labels: dict[str, str] | None) -> str:
    return text_of({**(meta.labels or {}), **(root_labels or {})})

"""The traits of pods and of pod templates: labels, and the scopes that a ResourceQuota knows.

Traits are recorded with every object that is charged, so labels that differ between the pods of
one workload, or that change when a pod is bound, are left out: they would only cost room and
events. Nobody can select by them, and a quota that tries to is warned about.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from ledger.core import traits
from ledger.kube import quantities
from ledger.kube.objects import Affinity, ObjectMeta, Pod, PodSpec, Resources
from ledger.kube.quantities import QuantityError

VOLATILE: Final = frozenset(
    (
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "pod-template-generation",
        "pod-template-hash",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
        "jobset.sigs.k8s.io/global-replicas",
        "jobset.sigs.k8s.io/group-index",
        "jobset.sigs.k8s.io/job-global-index",
        "jobset.sigs.k8s.io/job-group-index",
        "jobset.sigs.k8s.io/job-index",
        "jobset.sigs.k8s.io/job-key",
        "jobset.sigs.k8s.io/restart-attempt",
        "leaderworkerset.sigs.k8s.io/group-index",
        "leaderworkerset.sigs.k8s.io/group-key",
        "leaderworkerset.sigs.k8s.io/subgroup-index",
        "leaderworkerset.sigs.k8s.io/subgroup-key",
        "leaderworkerset.sigs.k8s.io/template-revision-hash",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "ray.io/identifier",
        "ray.io/replica-index",
        "ray.io/worker-group-replica-index",
        "ray.io/worker-group-replica-name",
        "training.kubeflow.org/replica-index",
    )
)
"""Labels that differ between the pods of one workload."""

VOLATILE_PREFIXES: Final = ("batch.kubernetes.io/", "hami.io/", "topology.kubernetes.io/")
"""Labels of a Job's pods, of an allocation, and of the node that a pod is bound to."""

_COMPUTE: Final = ("cpu", "memory")
_KEY: Final = re.compile(r"([a-z0-9][-.a-z0-9]{0,252}/)?[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_CLASS: Final = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")


def is_recorded(label: str) -> bool:
    """Return whether a label is among the traits of a pod that has it."""
    return label not in VOLATILE and not label.startswith(VOLATILE_PREFIXES)


def traits_of(pod: Pod) -> str:
    """Return the traits of a pod, as one text."""
    items = _scopes(pod.spec)
    labels = pod.metadata.labels
    if labels:
        items.update({key: labels[key] for key in labels if is_recorded(key)})
    return traits.text_of(items)


def traits_of_template(
    metadata: ObjectMeta, spec: PodSpec, root_labels: Mapping[str, str] | None
) -> str:
    """Return the traits of a pod template, as one text.

    The labels of the root that the template belongs to stand above those of the template. What a
    custom resource holds was never validated: labels and classes that no pod could have are left
    out, because no pod can come of them.
    """
    items = _scopes(spec)
    if not _CLASS.fullmatch(items.get(traits.PRIORITY, "none")):
        del items[traits.PRIORITY]
    for labels in (metadata.labels or {}, root_labels or {}):
        items.update({key: labels[key] for key in labels if _is_label(key, labels[key])})
    return traits.text_of(items)


def _is_label(key: str, value: str) -> bool:
    valid = _KEY.fullmatch(key) is not None and _VALUE.fullmatch(value) is not None
    return valid and is_recorded(key)


def _scopes(spec: PodSpec) -> dict[str, str]:
    """Return the items that are no labels."""
    items: dict[str, str] = {}
    if spec.priority_class_name:
        items[traits.PRIORITY] = spec.priority_class_name
    if spec.active_deadline_seconds is not None and spec.active_deadline_seconds >= 0:
        items[traits.TERMINATING] = ""
    if _is_best_effort(spec):
        items[traits.BEST_EFFORT] = ""
    if spec.affinity is not None and _crosses_namespaces(spec.affinity):
        items[traits.CROSS_NAMESPACE] = ""
    return items


def _is_best_effort(spec: PodSpec) -> bool:
    """Return whether nothing in a pod asks for any processor or memory: Kubernetes' QoS rule."""
    if _names_compute(spec.resources):
        return False
    for containers in (spec.containers, spec.init_containers):
        for container in containers or ():
            if _names_compute(container.resources):
                return False
    return True


def _names_compute(resources: Resources | None) -> bool:
    if resources is None:
        return False
    for given in (resources.requests, resources.limits):
        if given:
            for name in _COMPUTE:
                if name in given and _is_some(given[name]):
                    return True
    return False


@lru_cache(maxsize=quantities.REMEMBERED_MAX)
def _is_some(quantity: str | int) -> bool:
    """Return whether a quantity is not zero; what cannot be read will not be stored either."""
    try:
        return quantities.parse_scaled(quantity) > 0
    except QuantityError:
        return True


def _crosses_namespaces(affinity: Affinity) -> bool:
    return any(
        term.namespaces or term.namespace_selector is not None
        for side in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if side is not None
        for term in (
            *(side.required or ()),
            *(one.pod_affinity_term for one in side.preferred or ()),
        )
    )

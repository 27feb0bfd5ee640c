"""The traits of pods and of pod templates: labels, and the scopes that a ResourceQuota knows.

Traits are recorded with every object that is charged, so of labels only those are in them that some
account selects by, and of these as much as fits. Labels that differ between the pods of one
workload, or that change when a pod is bound, are left out in any case: they would only cost room
and events. Quotas cannot select by them, and a quota that tries to gets a warning.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from ledger.core.model import traits
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import Affinity, ObjectMeta, Pod, PodSpec, Resources
from ledger.kube.requests import quantities
from ledger.kube.requests.quantities import QuantityError

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

RECORDED_MAX: Final = 8_192
"""How many characters of traits are recorded of one object; of more there is only a digest."""

_DIGEST_BYTES: Final = 16
_COMPUTE: Final = ("cpu", "memory")
_KEY: Final = re.compile(r"([a-z0-9][-.a-z0-9]{0,252}/)?[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_CLASS: Final = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")


def is_recorded(label: str) -> bool:
    """Return whether a label is among the traits of a pod that has it."""
    return label not in VOLATILE and not label.startswith(VOLATILE_PREFIXES)


class RecordedLabels(msgspec.Struct, frozen=True):
    """The labels that are recorded: their keys, and the highest number that a key has got."""

    keys: tuple[str, ...] = ()
    read: int = 0


NONE: Final = RecordedLabels()


def labels_of(numbers: Mapping[str, int]) -> RecordedLabels:
    """Return the labels to record, from the numbers that a state has for their keys."""
    keys = tuple(sorted(key for key in numbers if _is_key(key)))
    return RecordedLabels(keys, numbers.get(traits.READ, 0))


def traits_of(pod: Pod, labels: RecordedLabels = NONE) -> str:
    """Return the traits of a pod with its labels of these keys, as one text."""
    items = _scopes(pod.spec)
    carried = pod.metadata.labels
    if carried and labels.keys:
        items.update({key: carried[key] for key in labels.keys if key in carried})
    return _marked(items, labels)


def recorded_traits(pod: Pod, labels: RecordedLabels = NONE) -> Traits:
    """Return the traits of a pod as the ledger keeps them, none when it has no trait."""
    text = traits_of(pod, labels)
    if not text:
        return ()
    return (text,) if len(text) <= RECORDED_MAX else bounded_traits((text,))


def bounded_traits(texts: Iterable[str]) -> Traits:
    """Return the texts of one object as they are recorded: themselves, or a digest of them all."""
    found = tuple(dict.fromkeys(texts))
    if sum(len(text) for text in found) <= RECORDED_MAX:
        return found
    items = {traits.UNREAD: digest_of("\n".join(found))}
    return (_marked(items, RecordedLabels(read=traits.read_up_to(found))),)


def digest_of(text: str) -> str:
    """Return what is recorded of a text that is too long."""
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def traits_of_template(
    metadata: ObjectMeta,
    spec: PodSpec,
    root_labels: Mapping[str, str] | None,
    labels: RecordedLabels = NONE,
) -> str:
    """Return the traits of a pod template with its labels of these keys, as one text.

    The labels of the root that the template belongs to stand above those of the template. What a
    custom resource holds was never validated: labels and classes that no pod could have are left
    out, because no pod can come of them.
    """
    items = _scopes(spec)
    if not _CLASS.fullmatch(items.get(traits.PRIORITY, "none")):
        del items[traits.PRIORITY]
    for carried in (metadata.labels or {}, root_labels or {}):
        for key in labels.keys:
            if key in carried and _VALUE.fullmatch(carried[key]):
                items[key] = carried[key]
    return _marked(items, labels)


def _marked(items: dict[str, str], labels: RecordedLabels) -> str:
    if labels.read:
        items[traits.READ] = str(labels.read)
    return traits.text_of(items)


def _is_key(key: str) -> bool:
    return _KEY.fullmatch(key) is not None and is_recorded(key)


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
                if name in given and is_positive(given[name]):
                    return True
    return False


def is_positive(quantity: str | int) -> bool:
    """Return whether a quantity is not zero; what cannot be read will not be stored either."""
    if isinstance(quantity, str) and len(quantity) > quantities.LENGTH_MAX:
        return True
    return is_positive_cached(quantity)


@lru_cache(maxsize=quantities.REMEMBERED_MAX)
def is_positive_cached(quantity: str | int) -> bool:
    """Return what `is_positive` does, for quantities that a cache may keep."""
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

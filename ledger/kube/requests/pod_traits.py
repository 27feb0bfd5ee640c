"""Pod traits: labels of pods and pod templates, and the scopes of a ResourceQuota.

Traits are recorded with every charged object. So they hold only labels by which some account
selects, up to a maximum size. Labels that differ between the pods of one workload, or that change
when a pod is bound, are never recorded, because they would cost memory and events. Quotas cannot
select by them, and a quota that tries gets a warning.
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
"""Prefixes of labels of a Job's pods, of an allocation, and of a pod's node."""

RECORDED_MAX: Final = 8_192
"""Characters of traits that are recorded of one object; longer traits become a digest."""

_DIGEST_BYTES: Final = 16
_COMPUTE: Final = ("cpu", "memory")
_KEY: Final = re.compile(r"([a-z0-9][-.a-z0-9]{0,252}/)?[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_CLASS: Final = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")


def is_recorded(label: str) -> bool:
    """Return whether a label is recorded among the traits of a pod."""
    return label not in VOLATILE and not label.startswith(VOLATILE_PREFIXES)


class RecordedLabels(msgspec.Struct, frozen=True):
    """The recorded labels: their keys, and the highest number that a key has."""

    keys: tuple[str, ...] = ()
    read: int = 0


NONE: Final = RecordedLabels()


def labels_of(numbers: Mapping[str, int]) -> RecordedLabels:
    """Return the labels to record, from the numbers of their keys in a state."""
    keys = tuple(sorted(key for key in numbers if _is_key(key)))
    return RecordedLabels(keys, numbers.get(traits.READ, 0))


def traits_of(pod: Pod, labels: RecordedLabels = NONE) -> str:
    """Return the traits of a pod, with its recorded labels, as one text."""
    items = _scopes(pod.spec)
    carried = pod.metadata.labels
    if carried and labels.keys:
        items.update({key: carried[key] for key in labels.keys if key in carried})
    return _marked(items, labels)


def recorded_traits(pod: Pod, labels: RecordedLabels = NONE) -> Traits:
    """Return the traits of a pod as the ledger keeps them; empty if it has none."""
    text = traits_of(pod, labels)
    if not text:
        return ()
    return (text,) if len(text) <= RECORDED_MAX else bounded_traits((text,))


def bounded_traits(texts: Iterable[str]) -> Traits:
    """Return the recorded form of one object's texts: the texts, or one digest of them all."""
    found = tuple(dict.fromkeys(texts))
    if sum(len(text) for text in found) <= RECORDED_MAX:
        return found
    items = {traits.UNREAD: digest_of("\n".join(found))}
    return (_marked(items, RecordedLabels(read=traits.read_up_to(found))),)


def digest_of(text: str) -> str:
    """Return the digest that is recorded instead of a text that is too long."""
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def traits_of_template(
    metadata: ObjectMeta,
    spec: PodSpec,
    root_labels: Mapping[str, str] | None,
    labels: RecordedLabels = NONE,
) -> str:
    """Return the traits of a pod template, with its recorded labels, as one text.

    The labels of the template's root override those of the template. The API server does not
    validate the template of a custom resource, so invalid labels and priority classes are left
    out: no pod can have them.
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
    """Return the items other than labels."""
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
    """Return whether no container requests CPU or memory: Kubernetes' BestEffort QoS class."""
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
    """Return whether a quantity is not zero; True for an invalid one, which is never stored."""
    if isinstance(quantity, str) and len(quantity) > quantities.LENGTH_MAX:
        return True
    return is_positive_cached(quantity)


@lru_cache(maxsize=quantities.REMEMBERED_MAX)
def is_positive_cached(quantity: str | int) -> bool:
    """Return the result of `is_positive` for a quantity that the cache may keep."""
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

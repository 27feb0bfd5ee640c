"""Pod traits: the scopes and recorded labels by which quotas select pods and pod templates.

The scopes are those of a ResourceQuota: priority class, Terminating, BestEffort and
CrossNamespacePodAffinity. Traits are recorded with every charged object, up to a maximum size.
`recorded_labels` decides which labels they hold.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from ledger.core.model import traits
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import Affinity, ObjectMeta, Pod, PodSpec, Resources
from ledger.kube.requests import quantities
from ledger.kube.requests.quantities import QuantityError
from ledger.kube.requests.recorded_labels import NONE, RecordedLabels

RECORDED_MAX: Final = 8_192
"""Characters of traits that are recorded of one object; longer traits become a digest."""

_DIGEST_BYTES: Final = 16
_COMPUTE: Final = ("cpu", "memory")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_CLASS: Final = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")


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


def label_traits(metadata: ObjectMeta, labels: RecordedLabels = NONE) -> Traits:
    """Return the traits of an object without scopes, such as a ResourceClaim: its labels."""
    carried = metadata.labels or {}
    text = _marked({key: carried[key] for key in labels.keys if key in carried}, labels)
    return bounded_traits((text,)) if text else ()


def bounded_traits(texts: Iterable[str]) -> Traits:
    """Return the recorded form of one object's texts: the texts, or one digest of them all."""
    distinct = tuple(dict.fromkeys(texts))
    if sum(len(text) for text in distinct) <= RECORDED_MAX:
        return distinct
    items = {traits.UNREAD: digest_of("\n".join(distinct))}
    return (_marked(items, RecordedLabels(read=traits.read_up_to(distinct))),)


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
            *(preference.pod_affinity_term for preference in side.preferred or ()),
        )
    )

"""Recorded labels: the labels of a pod by which some quota selects, recorded with its charge.

Labels that differ between the pods of one workload, or that change when a pod is bound, are never
recorded, because they would cost memory and events. Quotas cannot select by them, and a quota that
tries gets a warning.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ledger.core.model import traits

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

_KEY: Final = re.compile(r"([a-z0-9][-.a-z0-9]{0,252}/)?[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")


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


def _is_key(key: str) -> bool:
    return _KEY.fullmatch(key) is not None and is_recorded(key)

"""Reviewed pods: the pods with resource claims that this replica has allowed a moment ago.

The claims of a pod are generated right after the pod is stored. So the review of a claim finds its
pod here, and reads it from the API server only if another replica reviewed the pod.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.kube.api.objects import Pod
from ledger.kube.resource_claims.dra_objects import ClaimSpec

PODS_MAX: Final = 4_096
"""Most remembered pods; the oldest is forgotten first."""


class ReviewedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod, the specs of its templates by the names of its claims, and its reserved amounts."""

    pod: Pod
    specs: Mapping[str, ClaimSpec]
    amounts: Amounts


class ReviewedPods:
    """The newest reviewed pods by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, ReviewedPod] = {}

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._pods)

    def note(self, reviewed: ReviewedPod) -> None:
        """Remember a pod that was allowed; a later review of the pod replaces it."""
        uid = reviewed.pod.metadata.uid
        self._pods.pop(uid, None)
        if len(self._pods) >= PODS_MAX:
            del self._pods[next(iter(self._pods))]
        self._pods[uid] = reviewed

    def get(self, uid: str) -> ReviewedPod | None:
        """Return a pod, None if it is not remembered."""
        return self._pods.get(uid)

"""Asking: a pod that is being scheduled, what it wants, and what the last answers about it were.

kube-scheduler asks about one pod several times, in one order: filter, prioritize, bind. What was
worked out for one answer is kept for the next, as long as there is room; without it, the answer is
the same and takes longer.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from typing import Final, Generic, TypeVar

import msgspec

from extender.fit.fit_nodes import FitResult
from extender.fit.node_score_expression import Floats
from extender.inventory.arrays import Booleans
from ledger.kube.api.objects import Pod
from ledger.kube.api.resources import PODS
from ledger.kube.requests.device_requests import PodDeviceRequest

PODS_MAX: Final = 4_096
"""Pods that are remembered between filter and bind; more than one scheduler has on its way."""

FITS_MAX: Final = 16
"""Pods whose fits are remembered between filter and prioritize, which follow at once."""

T = TypeVar("T")


class SchedulingRequest(msgspec.Struct, frozen=True):
    """A pod and its wish, under the names by which the ledger knows it."""

    pod: Pod
    wish: PodDeviceRequest
    namespace: str
    key: str

    @property
    def uid(self) -> str:
        """Return the uid of the pod."""
        return self.pod.metadata.uid

    @property
    def version(self) -> int:
        """Return the resourceVersion of the pod, 0 when it is not known."""
        return version_of(self.pod)

    def of(self, node: str) -> str:
        """Return the name under which the ledger knows a node of the pod's cluster."""
        return f"{self.namespace.partition('/')[0]}/{node}"


class FilteredNodes(msgspec.Struct, frozen=True, dict=True):
    """Where a pod fits, and how well: `score` and `feasible` are about the nodes `names`.

    `fits` is about the nodes that the ledger knows, which come first; the others are imagined.
    """

    fits: FitResult
    names: Sequence[str]
    score: Floats
    feasible: Booleans

    @cached_property
    def passed(self) -> list[str]:
        """The names of the nodes where it fits, which is what is asked about next."""
        return list(compress(self.names, self.feasible.tolist()))

    @cached_property
    def places(self) -> dict[str, int]:
        """Where in `score` and `feasible` a node is."""
        return dict(zip(self.names, range(len(self.names)), strict=True))


def version_of(pod: Pod) -> int:
    """Return the resourceVersion of a pod, 0 when it has none or one that is not a number."""
    try:
        return pod.metadata.version()
    except ValueError:
        return 0


def request_for(pod: Pod, wish: PodDeviceRequest, cluster: str) -> SchedulingRequest:
    """Name a pod as the ledger does."""
    meta = pod.metadata
    return SchedulingRequest(pod, wish, f"{cluster}/{meta.namespace}", f"{PODS.name}/{meta.name}")


class BoundedCache(Generic[T]):
    """The newest values by the uid of a pod, and no more than `most`."""

    def __init__(self, most: int) -> None:
        """Remember nothing yet."""
        self._most = most
        self._known: OrderedDict[str, T] = OrderedDict()

    def put(self, uid: str, value: T) -> None:
        """Remember a value; the oldest goes where there is no room."""
        self._known[uid] = value
        self._known.move_to_end(uid)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def get(self, uid: str) -> T | None:
        """Return what is remembered about a pod."""
        return self._known.get(uid)

    def pop(self, uid: str) -> T | None:
        """Return what is remembered about a pod, and forget it."""
        return self._known.pop(uid, None)

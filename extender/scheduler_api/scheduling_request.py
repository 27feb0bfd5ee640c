"""A scheduling request: a pod, its device request, and its names in the ledger.

kube-scheduler sends one pod several times: select, or filter and prioritize, then bind. A request
is kept for the next answers, in a bounded cache. Without it the answer is the same but takes
longer.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.api.api_resources import PODS
from ledger.kube.api.objects import VERSION_DIGITS_MAX, Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.kube.requests.device_requests import PodDeviceRequest

PODS_MAX: Final = 4_096
"""Pods that are remembered between filter and bind; more than schedulers bind at a time."""

T = TypeVar("T")

_PODS: Final = PODS.name


class SchedulingRequest(msgspec.Struct, frozen=True):
    """A pod and its device request.

    `namespace` and `key` are the pod's names in the ledger: the namespace is qualified by the
    `cluster`. `version` is the pod's resourceVersion, 0 if it is unknown. The device request
    was read by `rules`.
    """

    pod: Pod
    devices: PodDeviceRequest
    cluster: str
    namespace: str
    key: str
    uid: str
    version: int
    needs_cards: bool
    rules: DemandRules | None = None


def request_for(
    pod: Pod, devices: PodDeviceRequest, cluster: str, rules: DemandRules | None = None
) -> SchedulingRequest:
    """Return the request to schedule a pod of a cluster."""
    meta = pod.metadata
    return SchedulingRequest(
        pod,
        devices,
        cluster,
        f"{cluster}/{meta.namespace}",
        f"{_PODS}/{meta.name}",
        meta.uid,
        version_of(pod),
        any(container.cards for container in devices.containers),
        rules,
    )


def version_of(pod: Pod) -> int:
    """Return the resourceVersion of a pod, 0 if it has none or one that is not a number."""
    text = pod.metadata.resource_version
    if len(text) > VERSION_DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return 0
    return int(text)


class BoundedCache(OrderedDict[str, T]):
    """The newest values by the uid of a pod, and no more than `most`; the oldest is dropped."""

    def __init__(self, most: int) -> None:
        """Hold nothing yet."""
        super().__init__()
        self._most = most

    def __setitem__(self, uid: str, value: T) -> None:
        super().__setitem__(uid, value)
        self.move_to_end(uid)
        if len(self) > self._most:
            self.popitem(last=False)


class SchedulingRequests:
    """Makes the requests for the pods of one cluster; `newest` has them by the pod's uid."""

    def __init__(self, cluster: str, rules: Callable[[], DemandRules]) -> None:
        """Read pods by the rules that `rules` returns at that time."""
        self._cluster, self._rules = cluster, rules
        self.newest: BoundedCache[SchedulingRequest] = BoundedCache(PODS_MAX)

    def read(self, pod: Pod) -> SchedulingRequest | Denial:
        """Return the request for a pod, or why its device request is invalid."""
        rules, known = self._rules(), self.newest.get(pod.metadata.uid)
        if known is not None and known.rules is rules and known.pod == pod:
            self.newest.move_to_end(known.uid)
            return known
        devices = device_request_of(pod, rules)
        if isinstance(devices, Denial):
            return devices
        # Nodes announce no cards of the other vendors: the scheduler itself counts those.
        devices = devices.among(annotation_keys.VENDOR_ANNOTATIONS)
        request = request_for(pod, devices, self._cluster, rules)
        self.newest[request.uid] = request
        return request

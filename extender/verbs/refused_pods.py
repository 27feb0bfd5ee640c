"""Refused pods: pods that fitted nowhere, grouped by what they request on which nodes.

Pods of one namespace with the same device request and the same nodes fit at the same time. A group
is tried again when the ledger or the assumed placements have changed. Each namespace has its own
bound and its turn, so that one tenant with many pods does not displace the others.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Final, NamedTuple

import msgspec

from extender.scheduler_api.scheduling_request import BoundedCache, SchedulingRequest
from ledger.kube.requests.device_requests import PodDeviceRequest

NAMESPACES_MAX: Final = 256
GROUPS_MAX: Final = 16
"""Groups of one namespace; the oldest is dropped. kube-scheduler retries its pods after minutes."""

UIDS_MAX: Final = 64
"""Pods of a group that are known by uid. A group with more of them stays until it expires."""

TRIED_MAX: Final = 32
"""Groups that are tried at a time."""

REFUSED_SECONDS: Final = 330.0
"""How long a group stays: kube-scheduler retries every pod after 300 s at the latest."""


class CardsVersion(NamedTuple):
    """The position of the log and the number of assumed placements by which pods are judged.

    `layout` is that of the card arrays: it changes with the cards of ResourceSlices, too.
    """

    position: int
    assumed: int
    layout: int = 0


class GroupKey(NamedTuple):
    """Pods of one group request this, and not on the rows of `excluded`, one bit for each row."""

    devices: PodDeviceRequest
    excluded: bytes


class RefusedGroup(msgspec.Struct):
    """Pods that fit at the same time, of which `request` is the newest.

    They fitted nowhere at `version`. They have fitted since if they `fit`. The group expires at
    loop time `until` in seconds. `uids` are its pods, and there may be others if it `has_more`.
    """

    key: GroupKey
    request: SchedulingRequest
    version: CardsVersion
    until: float
    uids: set[str]
    fit: bool = False
    has_more: bool = False

    def may_have(self, request: SchedulingRequest) -> bool:
        """Return whether a pod may be in the group; its request decides if its uid is unknown."""
        alike = request.namespace == self.request.namespace and request.devices == self.key.devices
        return request.uid in self.uids or (self.has_more and alike)


class RefusedPods:
    """The groups of refused pods of all namespaces; all times are of the loop, in seconds."""

    def __init__(self) -> None:
        """Start without pods."""
        self._groups: BoundedCache[OrderedDict[GroupKey, RefusedGroup]]
        self._groups = BoundedCache(NAMESPACES_MAX)

    def __len__(self) -> int:
        """Return the number of groups."""
        return sum(map(len, self._groups.values()))

    def add(
        self, request: SchedulingRequest, excluded: bytes, version: CardsVersion, now: float
    ) -> None:
        """Add a pod that fits nowhere at a version."""
        self.discard(request)
        key, groups = GroupKey(request.devices, excluded), self._groups.get(request.namespace)
        if groups is None:
            groups = self._groups[request.namespace] = OrderedDict()
        group = groups.get(key)
        if group is None:
            if len(groups) >= GROUPS_MAX:
                groups.popitem(last=False)
            group = groups[key] = RefusedGroup(key, request, version, 0.0, set())
        group.request, group.version, group.fit = request, version, False
        group.until = now + REFUSED_SECONDS
        if len(group.uids) < UIDS_MAX:
            group.uids.add(request.uid)
        else:
            group.has_more = True

    def discard(self, request: SchedulingRequest) -> None:
        """Remove a pod, and its group if no other pod may be in it."""
        for group in list(self._groups.get(request.namespace, {}).values()):
            group.uids.discard(request.uid)
            if not group.uids and not group.has_more:
                self.remove(group)

    def remove(self, group: RefusedGroup) -> None:
        """Remove a group."""
        groups = self._groups.get(group.request.namespace)
        if groups is None or groups.get(group.key) is not group:
            return
        del groups[group.key]
        if not groups:
            del self._groups[group.request.namespace]

    def due(self, version: CardsVersion, now: float) -> list[RefusedGroup]:
        """Return groups to try at this version, one of each namespace in turn, at most `TRIED_MAX`.

        The groups that are returned come last the next time. Groups that have expired are removed.
        """
        for group in [group for group in self._all() if group.until <= now]:
            self.remove(group)
        turns = zip_longest(*map(list, self._due_by_namespace(version)))
        due = (group for turn in turns for group in turn if group is not None)
        chosen = list(islice(due, TRIED_MAX))
        for group in chosen:
            self._groups[group.request.namespace].move_to_end(group.key)
            self._groups.move_to_end(group.request.namespace)
        return chosen

    def _all(self) -> Iterator[RefusedGroup]:
        for groups in self._groups.values():
            yield from groups.values()

    def _due_by_namespace(self, version: CardsVersion) -> Iterator[list[RefusedGroup]]:
        for groups in self._groups.values():
            yield [group for group in groups.values() if group.fit or group.version != version]

"""Namespace labels, by which policies and quotas select."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from ledger.kube.api.api_resources import NAMESPACES
from ledger.kube.api.cluster_ports import Change, Changed, Listed, Reached, Workloads
from ledger.kube.api.errors import ClusterError
from ledger.kube.api.objects import Workload
from ledger.kube.requests import namespace_traits

Labels = Mapping[str, str]

LOOK_SECONDS: Final = 2.0
"""How long a review waits for the API server at one question; the rest is for the ledger."""

_log: Final = structlog.get_logger("webhook")


class Namespaces:
    """The namespaces of one cluster that the watch has listed so far.

    `listed` is set once all were listed, or the watch reported that they cannot be.
    """

    def __init__(self, cluster: Workloads | None) -> None:
        """Read from this cluster the namespaces that the watch has not listed yet."""
        self.listed = asyncio.Event()
        self._cluster = cluster
        self._labels: dict[str, Labels] = {}

    def labels_of(self, name: str) -> Labels | None:
        """Return the labels of a namespace, None when it is not known."""
        return self._labels.get(name)

    def traits_of(self, name: str) -> str | None:
        """Return the traits of a namespace as `Describe` takes them, None when not known."""
        labels = self._labels.get(name)
        return None if labels is None else namespace_traits.of_namespace(name, labels)

    def take(self, change: Change[Workload]) -> tuple[str, ...]:
        """Apply a change from the watch; return the namespaces whose labels changed."""
        if not isinstance(change, Reached):
            self.listed.set()
        if isinstance(change, Listed):
            before = self._labels
            self._labels = {one.metadata.name: _labels(one) for one in change.objects}
            names = {**before, **self._labels}
            return tuple(one for one in names if before.get(one) != self._labels.get(one))
        if isinstance(change, Changed):
            name = change.object.metadata.name
            known, told = self._labels.pop(name, None), _labels(change.object)
            if not change.deleted:
                self._labels[name] = told
            return () if known == told and not change.deleted else (name,)
        return ()

    async def read(self, name: str, until: float) -> bool:
        """Read a namespace that is not known, by loop time `until`; return whether it is now."""
        return await self._read(name, until) is True

    async def exists(self, name: str, until: float) -> bool | None:
        """Return whether a namespace exists, by loop time `until`; None when that is not known."""
        return True if name in self._labels else await self._read(name, until)

    async def _read(self, name: str, until: float) -> bool | None:
        """Read a namespace; return whether there is one, None when the cluster does not answer."""
        if self._cluster is None:
            return None
        try:
            async with asyncio.timeout_at(until):
                seen = await self._cluster.get_object(NAMESPACES, "", name)
        except (ClusterError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            _log.warning("namespace_not_read", namespace=name, reason=reason)
            return None
        if seen is None:
            return False
        self._labels.setdefault(name, _labels(seen))
        return True


def _labels(seen: Workload) -> Labels:
    return seen.metadata.labels or {}


def read_deadline(until: float) -> float:
    """Return the loop time by which a review that ends at `until` has read something."""
    return min(until, asyncio.get_running_loop().time() + LOOK_SECONDS)

"""Namespace labels: the labels of a cluster's namespaces, by which policies and quotas select."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from ledger.kube.api.api_resources import NAMESPACES
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change, Changed, Listed, Reached, Workloads
from ledger.kube.api.objects import Workload
from ledger.kube.requests import namespace_traits

Labels = Mapping[str, str]


_log: Final = structlog.get_logger("webhook")


class Namespaces:
    """The known namespaces of one cluster.

    `listed` is set once all were listed, or the watch reported that they cannot be listed.
    """

    def __init__(self, cluster: Workloads | None) -> None:
        """`cluster` is read for namespaces that the watch has not listed yet."""
        self.listed = asyncio.Event()
        self._cluster = cluster
        self._labels: dict[str, Labels] = {}
        self._is_complete = False

    def names(self) -> list[str] | None:
        """Return the names of all namespaces, None until the watch has listed them."""
        return list(self._labels) if self._is_complete else None

    def labels_of(self, name: str) -> Labels | None:
        """Return the labels of a namespace, None if it is not known."""
        return self._labels.get(name)

    def traits_of(self, name: str) -> str | None:
        """Return the traits of a namespace for `Describe`, None if it is not known."""
        labels = self._labels.get(name)
        return None if labels is None else namespace_traits.of_namespace(name, labels)

    def take(self, change: Change[Workload]) -> tuple[str, ...]:
        """Apply a change from the watch; return the namespaces whose labels changed."""
        if not isinstance(change, Reached):
            self.listed.set()
        if isinstance(change, Listed):
            self._is_complete = True
            before = self._labels
            self._labels = {seen.metadata.name: _labels(seen) for seen in change.objects}
            names = {**before, **self._labels}
            return tuple(
                namespace
                for namespace in names
                if before.get(namespace) != self._labels.get(namespace)
            )
        if isinstance(change, Changed):
            name = change.object.metadata.name
            known, labels = self._labels.pop(name, None), _labels(change.object)
            if not change.deleted:
                self._labels[name] = labels
            return () if known == labels and not change.deleted else (name,)
        return ()

    async def read(self, name: str, until: float) -> bool:
        """Read a namespace, by loop time `until`; return whether it exists and is known now."""
        return await self._read(name, until) is True

    async def exists(self, name: str, until: float) -> bool | None:
        """Return whether a namespace exists, by loop time `until`; None if that is not known."""
        return True if name in self._labels else await self._read(name, until)

    async def _read(self, name: str, until: float) -> bool | None:
        """Read a namespace; return whether it exists, None if the cluster does not answer."""
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

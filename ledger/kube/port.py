"""The port of a cluster: what settlement needs to know from an API server.

The real adapter is `ledger.kube.cluster`; tests and the simulation drive settlement with models
of an API server behind the same port.
"""

from collections.abc import AsyncGenerator
from typing import Generic, Protocol, TypeVar

import msgspec

from ledger.kube.objects import Pod, ResourceQuota

T = TypeVar("T")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """Everything that existed at one resourceVersion."""

    version: int
    objects: list[T]


class Changed(msgspec.Struct, Generic[T], frozen=True):
    """An object was written at `version`, or with `deleted` removed by that write."""

    version: int
    object: T
    deleted: bool = False


class Reached(msgspec.Struct, frozen=True):
    """A bookmark: every change up to `version` has been told."""

    version: int


class Interrupted(msgspec.Struct, frozen=True):
    """Nothing can be told for the moment, for this reason; the watch goes on trying."""

    reason: str


Change = Listed[T] | Changed[T] | Reached | Interrupted


class Cluster(Protocol):
    """One cluster as settlement sees it. Every call has a deadline of its own."""

    async def kube_system_uid(self) -> str:
        """Return the uid of the `kube-system` namespace. Raises ClusterError."""
        ...

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        """List a namespace's pods, linearizably: with every write that was finished before.

        Raises ClusterError; then nothing is known.
        """
        ...

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        """Tell all pods, then their changes in order of versions, without end.

        Begins with a `Listed`; another one follows whenever the history was lost.
        """
        ...

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        """Tell all ResourceQuotas, then their changes, like `watch_pods`."""
        ...

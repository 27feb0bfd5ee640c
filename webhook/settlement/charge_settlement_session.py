"""Charge settlement session: one period in which this replica is the active one.

All parts of settlement and of the quota accounts share its state, cluster and command queue.
"""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ledger.core.model import accounts
from ledger.core.model.commands import End
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry
from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.cluster_ports import (
    FilteredWatches,
    PolicyWatches,
    StatusWrites,
    WatchedCluster,
    Workloads,
)
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.log.command_delivery import CommandQueue
from ledger.log.ledger_port import StateView
from ledger.runtime.counter_protocol import Count
from webhook.context.cluster_context import ClusterContext

WATCHED: Final = "settlement"
"""The actor of commands that follow from a watch or an absence proof."""

RECOUNTED: Final = "recount"
"""The actor of commands that follow from a recount."""

TICK_SECONDS: Final = 1.0
"""Period of the checks of grace periods and open attempts; shorter if the bound is short."""


class SettledCluster(
    WatchedCluster, Workloads, FilteredWatches, PolicyWatches, StatusWrites, Protocol
):
    """The ports of a cluster that settlement reads and writes."""


class SettlementSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of settlement in seconds, and how requests and quotas are read.

    `settle_seconds` must be longer than any admission and etcd write can take: 34 s is the API
    server's cap on a request, and its etcd client may add some seconds. Universe quotas select this
    cluster by `cluster_traits`; None for its name alone. With `universe_authority` this
    cluster's universe quotas are the ledger's. With `write_quota_status` the amounts that the
    ledger counts are written to the status of ResourceQuotas.
    """

    rules: DemandRules = DemandRules()
    settle_seconds: float = 60.0
    recount_seconds: float = 600.0
    zero_is_unlimited: bool = False
    cluster_traits: str | None = None
    universe_authority: bool = False
    write_quota_status: bool = False


class Site(msgspec.Struct, frozen=True):
    """The cluster that is settled, and the context in which its objects are read."""

    cluster: SettledCluster
    context: ClusterContext


class SettlementSession:
    """The state, the cluster with its context, and the queue of commands to the ledger.

    `name` is the cluster's name in the ledger. `settled_kinds` begin the keys that settlement
    commits and releases: `pods`, resource claims, and the kinds that can be roots. `tick_seconds`
    is the period of the checks.
    """

    def __init__(
        self,
        view: StateView,
        site: Site,
        *,
        settings: SettlementSettings,
        now: Callable[[], int],
        commands: CommandQueue,
        count: Count,
    ) -> None:
        """Begin a session. `now` returns µs of Unix time."""
        self.view = view
        self.cluster = site.cluster
        self.context = site.context
        self.name = site.context.name
        self.settings = settings
        self.now = now
        self.commands = commands
        self.count = count
        self.failures = FailedObjects(count)
        self.tick_seconds = min(TICK_SECONDS, settings.settle_seconds / 4)
        self.namespace_prefix = f"{self.name}/"
        self.settled_kinds = frozenset(
            ("pods", CLAIMS.name, *(kind.name for kind in self.context.catalog.roots))
        )

    async def catch_up(self) -> None:
        """Wait until the queue is empty and the state is as new as the log was before.

        A list is compared with the state. A state that is behind does not show what has to end.
        """
        await self.commands.send(End(self.namespace_prefix, "", "", 0, Cause.DELETED, RECOUNTED))
        await self.commands.flush()

    def settles(self, key: str) -> bool:
        """Return whether settlement commits and releases a key."""
        return key.partition("/")[0] in self.settled_kinds

    def owns(self, namespace: str) -> bool:
        """Return whether a qualified namespace belongs to this cluster."""
        return namespace.startswith(self.namespace_prefix)

    def namespaces(self) -> list[str]:
        """Return the qualified namespaces of this cluster in the ledger."""
        return [name for name in self.view.state.namespaces if self.owns(name)]

    def entry(self, namespace: str, key: str) -> Entry | None:
        """Return the ledger's entry of a key, None if it has none."""
        return self.view.state.entry(namespace, key)

    def keys(self, namespace: str) -> list[str]:
        """Return all keys of a qualified namespace."""
        space = self.view.state.namespaces.get(namespace)
        return list(space.entries) if space is not None else []

    def members(self, namespace: str, root: str) -> int:
        """Return how many pods of a qualified namespace draw from a root, which may be deleted."""
        space = self.view.state.namespaces.get(namespace)
        return len(space.members.get(root, ())) if space is not None else 0

    def quota_accounts(self) -> list[str]:
        """Return the open quota accounts of this cluster."""
        prefix = accounts.quota(self.name, "", "").rstrip("/") + "/"
        return [account for account in self.view.state.accounts if account.startswith(prefix)]

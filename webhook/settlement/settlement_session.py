"""A tenure: one period in which this replica is the active one, and what its parts share."""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.model import accounts
from ledger.core.model.commands import End
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry
from ledger.kube.api.ports import Cluster
from ledger.kube.requests.demand_rules import DemandRules, Recording
from ledger.kube.requests.pod_traits import Labels
from ledger.kube.watch.failed_objects import Failures
from ledger.log.command_queue import CommandQueue
from ledger.log.ledger import StateView
from ledger.runtime.counter_protocol import Count, uncounted
from webhook.context.cluster_and_context import Beyond

WATCHED: Final = "settlement"
"""The actor of commands that follow from the watch or from a proof."""

RECOUNTED: Final = "recount"
"""The actor of commands that follow from comparing everything with a list."""


class SettlementSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of settlement, in seconds, and how requests and quotas are read.

    `settle_seconds` must be longer than any admission and etcd write can take: 34 s is the API
    server's cap on a request, and its etcd client may add some seconds. `cluster_traits` is what
    universe quotas select this cluster by, None: its name alone. `universe_authority` says whether
    this cluster's universe quotas are the ledger's, `write_quota_status` whether ResourceQuotas are
    told what the ledger counts.
    """

    rules: DemandRules = DemandRules()
    settle_seconds: float = 60.0
    recount_seconds: float = 600.0
    zero_is_unlimited: bool = False
    cluster_traits: str | None = None
    universe_authority: bool = False
    write_quota_status: bool = False


class Site(msgspec.Struct, frozen=True):
    """The cluster that is settled, and its name in the ledger.

    Without `beyond`, only its pods and ResourceQuotas are.
    """

    cluster: Cluster
    name: str
    beyond: Beyond | None = None


class SettlementSession:
    """What the parts of settlement work with: the state, the cluster, and a way to the ledger."""

    def __init__(
        self,
        view: StateView,
        site: Site,
        settings: SettlementSettings,
        now: Callable[[], int],
        courier: CommandQueue,
        count: Count = uncounted,
    ) -> None:
        """`now` tells µs of Unix time."""
        self.view = view
        self.cluster = site.cluster
        self.name = site.name
        self.beyond = beyond = site.beyond
        self.settings = settings
        self.now = now
        self.courier = courier
        self.count = count
        self.failures = Failures(count)
        self._recording = Recording()
        roots = beyond.context.catalog.roots if beyond is not None else ()
        self._settled = frozenset(("pods", *(kind.name for kind in roots)))

    async def catch_up(self) -> None:
        """Wait until all that was sent has arrived and the state is as new as the log was before.

        A list is compared with the state: one that is behind does not show what has to end.
        """
        await self.courier.send(End(f"{self.name}/", "", "", 0, Cause.DELETED, RECOUNTED))
        await self.courier.flush()

    @property
    def rules(self) -> DemandRules:
        """How requests become amounts, as reviews read them too."""
        if self.beyond is not None:
            return self.beyond.context.rules
        return self._recording.rules(self.settings.rules, self.view.state.labels)

    @property
    def labels(self) -> Labels:
        """The labels that are recorded as of now."""
        return self.rules.labels

    def settles(self, key: str) -> bool:
        """Return whether settlement speaks for a key: that of a pod, or of a kind of roots."""
        return key.partition("/")[0] in self._settled

    def owns(self, namespace: str) -> bool:
        """Return whether a qualified namespace belongs to this cluster."""
        return namespace.startswith(f"{self.name}/")

    def namespaces(self) -> list[str]:
        """Return the qualified namespaces of this cluster that the ledger knows."""
        return [name for name in self.view.state.namespaces if self.owns(name)]

    def entry(self, namespace: str, key: str) -> Entry | None:
        """Return what the ledger knows of a key now."""
        return self.view.state.entry(namespace, key)

    def keys(self, namespace: str) -> list[str]:
        """Return all keys of a qualified namespace."""
        space = self.view.state.namespaces.get(namespace)
        return list(space.entries) if space is not None else []

    def members(self, namespace: str, root: str) -> int:
        """Return how many pods of a qualified namespace draw from a root, which may be gone."""
        space = self.view.state.namespaces.get(namespace)
        return len(space.members.get(root, ())) if space is not None else 0

    def quota_accounts(self) -> list[str]:
        """Return the open quota accounts of this cluster."""
        prefix = accounts.quota(self.name, "", "").rstrip("/") + "/"
        return [account for account in self.view.state.accounts if account.startswith(prefix)]

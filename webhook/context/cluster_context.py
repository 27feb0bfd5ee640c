"""The context of one replica: what it has read of everything around a request."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ledger.core.model.commands import Reserve
from ledger.core.model.qualified_names import qualified
from ledger.core.model.state import State
from ledger.kube.requests.demand_rules import DemandRules, RecordedLabelRules
from ledger.kube.watch.owner_cache import OwnerCache
from webhook.context.context_informers import ContextInformers, ContextSource
from webhook.context.namespaces import Namespaces
from webhook.context.owner_chain import OwnerChains, StateSource
from webhook.context.owner_digest import owner_digest
from webhook.context.policies import NamespacePolicy, Policies
from webhook.context.refused_hami_accounts import RefusedHamiAccounts
from webhook.kinds.catalog import KindCatalog
from webhook.settlement.observation import holds_uid, recorded_root

LOOK_SECONDS: Final = 2.0
"""How long a review waits for the API server at one question; the rest is for the ledger."""


class _Blind:
    """Sees nothing of the ledger."""

    state: Final = State()


class ClusterContext:
    """What a replica knows of everything around a request.

    Without a cluster that is the kinds, the settings, and what the ledger has.
    """

    def __init__(
        self,
        catalog: KindCatalog,
        rules: DemandRules,
        view: StateSource,
        name: str,
        *,
        default: NamespacePolicy | None = None,
        cluster: ContextSource | None = None,
        current: Callable[[], DemandRules] | None = None,
        doubts: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`name` is the cluster's in the ledger; `default` treats what no policy selects.

        `current` returns `rules` with what is known by now of the cluster's cards, and `doubts`
        what of these is not believed.
        """
        self.catalog = catalog
        self._current = current or (lambda: rules)
        self._doubts = doubts
        self._recording = RecordedLabelRules()
        self.view = view
        self.name = name
        self.cluster = cluster
        self.identity = ""
        """The user name that this service has at the API server, empty while it is not known."""
        self.parents: OwnerCache[bytes] = OwnerCache(owner_digest(catalog, rules))
        self.owner_chains = OwnerChains(catalog, self.parents, cluster, view, name)
        self.refused_hami_accounts = RefusedHamiAccounts(None)
        """Accounts that may be a HAMi's; without a cluster, none is kept."""
        self.namespaces = Namespaces(cluster)
        self.policies = Policies(default or NamespacePolicy(), self.namespaces)
        self.informers = (
            None
            if cluster is None
            else ContextInformers(cluster, catalog, self.parents, self.namespaces, self.policies)
        )

    @property
    def rules(self) -> DemandRules:
        """How requests become amounts, as of now."""
        return self._recording.rules(self._current(), self.view.state.labels)

    @classmethod
    def none(cls, name: str, rules: DemandRules) -> "ClusterContext":
        """Return those of which nothing is known: every pod counts by itself."""
        return cls(KindCatalog(()), rules, _Blind(), name)

    def recorded_root(self, reserve: Reserve) -> str | None:
        """Return the root that the ledger has for an existing object, None when it has none."""
        entry = self.view.state.entry(reserve.namespace, reserve.key)
        known = entry is not None and holds_uid(entry, reserve.uid)
        return recorded_root(entry, reserve.uid) if known else None

    def until(self, deadline: float) -> float:
        """Return the loop time by which one question to the API server has to be answered."""
        return min(deadline, asyncio.get_running_loop().time() + LOOK_SECONDS)

    async def policy_of(self, namespace: str, deadline: float) -> NamespacePolicy:
        """Return how a namespace is treated; wait for what is not known yet, up to a bound."""
        if self.cluster is None:
            return self.policies.of(namespace)
        if not self.policies.listed.is_set():
            await self._first(self.policies.listed, deadline)
        if self.policies.is_in_use() and self.namespaces.labels_of(namespace) is None:
            await self.namespaces.read(namespace, self.until(deadline))
        return self.policies.of(namespace)

    def is_watched(self) -> bool:
        """Return whether the ledger is told of this cluster by a service that watches it."""
        return self.cluster is not None or self.name in self.view.state.clusters

    async def has_namespace(self, namespace: str, deadline: float) -> bool | None:
        """Return whether a namespace exists, None when that is not known.

        Of a cluster that is not asked, the ledger knows the namespaces that a service has described
        and, where no service watches, those that a quota covers or a review was about.
        """
        if self.cluster is not None:
            return await self.namespaces.exists(namespace, self.until(deadline))
        state, prefix = self.view.state, qualified(self.name, "")
        if prefix + namespace in state.described:
            return True
        if self.is_watched():
            return False if any(one.startswith(prefix) for one in state.described) else None
        known = any(one.startswith(prefix) for one in state.namespaces)
        if prefix + namespace in state.namespaces or not known or state.reaching:
            return None
        return False

    async def traits_of(self, namespace: str, deadline: float) -> str | None:
        """Return the traits of a namespace for `Describe`, None when they cannot be known."""
        if self.namespaces.labels_of(namespace) is None:
            await self.namespaces.read(namespace, self.until(deadline))
        return self.namespaces.traits_of(namespace)

    def problems(self) -> list[str]:
        """Return what is not known or not understood of the cluster."""
        following = self.informers.problems() if self.informers is not None else []
        unbelieved = self.owner_chains.unrecognized_controllers.problems()
        refused = self.refused_hami_accounts.problems()
        return [*following, *self.policies.problems(), *self._doubts(), *unbelieved, *refused]

    async def _first(self, told: asyncio.Event, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(self.until(deadline)):
                await told.wait()
        except TimeoutError:
            return

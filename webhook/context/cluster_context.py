"""Cluster context of one replica: the caches and settings that reviews and settlement share."""

from collections.abc import Callable, Sequence

from ledger.core.model.commands import Reserve
from ledger.core.model.qualified_names import qualified
from ledger.kube.requests.demand_rules import DemandRules, RecordedLabelRules
from ledger.kube.watch.owner_cache import OwnerCache
from webhook.context.context_informers import ContextInformers, ContextSource
from webhook.context.namespace_labels import Namespaces, read_deadline
from webhook.context.namespace_policies import NamespacePolicy, Policies
from webhook.context.owner_chain import OwnerChains, StateSource
from webhook.context.owner_digest import owner_digest
from webhook.context.refused_hami_accounts import RefusedHamiAccounts
from webhook.kinds.kind_catalog import KindCatalog


class ClusterContext:
    """The owners, namespaces, policies and settings that reviews in one cluster use.

    Without a cluster there are only the kinds, the settings and the state of the ledger.
    """

    def __init__(
        self,
        name: str,
        *,
        catalog: KindCatalog,
        view: StateSource,
        cluster: ContextSource | None,
        default: NamespacePolicy,
        rules: DemandRules,
        current: Callable[[], DemandRules],
        doubts: Callable[[], Sequence[str]],
    ) -> None:
        """`name` is the cluster's in the ledger; `default` treats what no policy selects.

        `current` returns `rules` with the sizes of the cards that the cluster has by now, and
        `doubts` the announcements of cards that do not count.
        """
        self.name = name
        self.catalog = catalog
        self.view = view
        self.cluster = cluster
        self._current = current
        self._doubts = doubts
        self._recording = RecordedLabelRules()
        self.identity = ""
        """The user name that this service has at the API server, empty while it is not known."""
        self.parents: OwnerCache[bytes] = OwnerCache(owner_digest(catalog, rules))
        self.owner_chains = OwnerChains(
            name, catalog=catalog, parents=self.parents, cluster=cluster, view=view
        )
        self.refused_hami_accounts = RefusedHamiAccounts(None)
        """Accounts that may be a HAMi's; without a cluster, none is kept."""
        self.namespaces = Namespaces(cluster)
        self.policies = Policies(default, self.namespaces)
        self.informers: ContextInformers | None = None
        if cluster is None:
            self.policies.listed.set()  # there is nothing to wait for
        else:
            self.informers = ContextInformers(
                cluster,
                catalog=catalog,
                parents=self.parents,
                namespaces=self.namespaces,
                policies=self.policies,
            )

    @property
    def rules(self) -> DemandRules:
        """How requests become amounts, as of now."""
        labels = self.view.state.labels
        return self._recording.rules(self._current(), labels) if labels else self._current()

    def recorded_root(self, reserve: Reserve) -> str | None:
        """Return the root that the ledger has for an existing object, None when it has none."""
        entry = self.view.state.entry(reserve.namespace, reserve.key)
        if entry is None or not entry.holds_uid(reserve.uid):
            return None
        return entry.root_of(reserve.uid)

    def is_watched(self) -> bool:
        """Return whether a service watches this cluster for the ledger."""
        return self.cluster is not None or self.name in self.view.state.clusters

    async def has_namespace(self, namespace: str, deadline: float) -> bool | None:
        """Return whether a namespace exists, None when that is not known.

        Without a connection to the cluster, the ledger has the namespaces that a service has
        described and, where no service watches, those that a quota covers or a review was about.
        """
        if self.cluster is not None:
            return await self.namespaces.exists(namespace, read_deadline(deadline))
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
        """Return the traits of a namespace for `Describe`, None when they cannot be read."""
        if self.namespaces.labels_of(namespace) is None:
            await self.namespaces.read(namespace, read_deadline(deadline))
        return self.namespaces.traits_of(namespace)

    def problems(self) -> list[str]:
        """Return the problems with reading the cluster and its policies."""
        return [
            *(self.informers.problems() if self.informers is not None else ()),
            *self.policies.problems(),
            *self._doubts(),
            *self.owner_chains.unrecognized_controllers.problems(),
            *self.refused_hami_accounts.problems(),
        ]

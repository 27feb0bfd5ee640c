"""Cluster context of one replica: the caches and settings that reviews and settlement share."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ledger.core.model.commands import Reserve
from ledger.core.model.qualified_names import qualified
from ledger.kube.requests import recorded_labels
from ledger.kube.requests.claim_demands import ClaimDemands
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims.device_classes import class_mapping
from ledger.kube.watch.owner_cache import OwnerCache
from webhook.context.context_informers import ContextInformers, ContextSource
from webhook.context.namespace_labels import Namespaces
from webhook.context.namespace_policies import NamespacePolicy, Policies
from webhook.context.owner_cache_content import owner_digest
from webhook.context.owner_chain import OwnerChains, StateSource
from webhook.context.read_deadline import read_deadline
from webhook.context.refused_hami_accounts import RefusedHamiAccounts
from webhook.context.resource_claims.claim_store import ClaimStore
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
        """`name` is the name of the cluster in the ledger.

        `default` applies to namespaces that no policy selects. `current` returns `rules` with the
        sizes of the cluster's current cards, and `doubts` the announced card sizes that do not
        count. Device classes have the built-in mapping, see `ClaimStore.use_mapping`.
        """
        self.name = name
        self.catalog = catalog
        self.view = view
        self.cluster = cluster
        self._current = current
        self._doubts = doubts
        self.resource_claims = ClaimStore(
            name,
            view=view,
            cluster=cluster,
            rules=current,
            mapping=class_mapping(vendors=rules.vendors),
        )
        self._recording = _CompletedRules(self.resource_claims)
        self.identity = ""
        """The user name of this service at the API server, empty until it is known."""
        self.parents: OwnerCache[bytes] = OwnerCache(owner_digest(catalog, rules))
        self.owner_chains = OwnerChains(
            name, catalog=catalog, parents=self.parents, cluster=cluster, view=view
        )
        self.refused_hami_accounts = RefusedHamiAccounts(None)
        """Accounts that may belong to a HAMi; without a cluster, none is kept."""
        self.namespaces = Namespaces(cluster)
        self.policies = Policies(default, self.namespaces)
        self.informers = self._informers()

    @property
    def rules(self) -> DemandRules:
        """The current demand rules, with the sizes of cards, the labels and the claims."""
        return self._recording.rules(self._current(), self.view.state.labels)

    def _informers(self) -> ContextInformers | None:
        """Return the watches, None without a cluster."""
        if self.cluster is None:
            self.policies.listed.set()  # there is nothing to wait for
            return None
        return ContextInformers(
            self.cluster,
            catalog=self.catalog,
            parents=self.parents,
            namespaces=self.namespaces,
            policies=self.policies,
            claims=self.resource_claims,
        )

    def recorded_root(self, reserve: Reserve) -> str | None:
        """Return the recorded root of an existing object, None if the ledger has no such object."""
        entry = self.view.state.entry(reserve.namespace, reserve.key)
        if entry is None or not entry.holds_uid(reserve.uid):
            return None
        return entry.root_of(reserve.uid)

    def is_watched(self) -> bool:
        """Return whether a service watches this cluster for the ledger."""
        return self.cluster is not None or self.name in self.view.state.clusters

    async def has_namespace(self, namespace: str, deadline: float) -> bool | None:
        """Return whether a namespace exists, None if that is not known.

        Without a connection to the cluster, the ledger decides. It has the namespaces that a
        service described and, if no service watches the cluster, those with a quota or a review.
        """
        if self.cluster is not None:
            return await self.namespaces.exists(namespace, read_deadline(deadline))
        state, prefix = self.view.state, qualified(self.name, "")
        if prefix + namespace in state.described:
            return True
        if self.is_watched():
            return False if any(subject.startswith(prefix) for subject in state.described) else None
        known = any(other.startswith(prefix) for other in state.namespaces)
        if prefix + namespace in state.namespaces or not known or state.reaching:
            return None
        return False

    async def traits_of(self, namespace: str, deadline: float) -> str | None:
        """Return the traits of a namespace for `Describe`, None if they cannot be read."""
        if self.namespaces.labels_of(namespace) is None:
            await self.namespaces.read(namespace, read_deadline(deadline))
        return self.namespaces.traits_of(namespace)

    def problems(self) -> list[str]:
        """Return the problems with reading the cluster and its policies."""
        return [
            *(self.informers.problems() if self.informers is not None else ()),
            *self.policies.problems(),
            *self._doubts(),
            *self.resource_claims.slices.supply.doubts(),
            *self.owner_chains.unrecognized_controllers.problems(),
            *self.refused_hami_accounts.problems(),
        ]


class _CompletedRules:
    """Adds the recorded labels and the resource claims to rules, and caches the last result."""

    def __init__(self, claims: ClaimDemands) -> None:
        self._claims = claims
        self._rules: DemandRules | None = None
        self._numbers: dict[str, int] = {}
        self._made: DemandRules | None = None

    def rules(self, rules: DemandRules, numbers: Mapping[str, int]) -> DemandRules:
        """Return the rules with the claims, and the labels that have numbers in a state."""
        if self._made is None or rules is not self._rules or numbers != self._numbers:
            self._rules, self._numbers = rules, dict(numbers)
            labels = recorded_labels.labels_of(numbers) if numbers else rules.labels
            self._made = msgspec.structs.replace(rules, labels=labels, claims=self._claims)
        return self._made

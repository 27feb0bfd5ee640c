"""Cluster contexts: that of a cluster, or one in which every pod is charged by itself."""

from typing import Any, Final

from ledger.core.model.state import State
from ledger.kube.requests.demand_rules import DemandRules
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_catalog import KindCatalog


class _EmptyLedger:
    """A ledger without any entry."""

    state: Final = State()


def cluster_context(
    name: str,
    view: Any,
    *,
    catalog: KindCatalog,
    rules: DemandRules,
    cluster: Any = None,
    default: NamespacePolicy | None = None,
    **more: Any,
) -> ClusterContext:
    """Return the context of a cluster of this name in the ledger of `view`."""
    given = {"current": lambda: rules, "doubts": tuple, **more}
    return ClusterContext(
        name,
        catalog=catalog,
        view=view,
        cluster=cluster,
        default=default or NamespacePolicy(),
        rules=rules,
        **given,
    )


def unknown_context(name: str, rules: DemandRules) -> ClusterContext:
    """Return the context of a cluster of which nothing was read: every pod counts by itself."""
    return cluster_context(name, _EmptyLedger(), catalog=KindCatalog(()), rules=rules)

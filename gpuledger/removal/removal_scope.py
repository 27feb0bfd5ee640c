"""Removal scope: the installation that an uninstall removes."""

import msgspec

from gpuledger.cli import release_names
from gpuledger.removal.quota_leftovers import ZeroQuotas
from gpuledger.wiring.demand_rules_from_settings import demand_rules
from ledger.kube.requests.demand_rules import DemandRules
from ledger.runtime.settings.settings import Settings


class RemovalScope(msgspec.Struct, frozen=True, kw_only=True):
    """The installation: namespaces and name of its objects, its resources; and zero quotas.

    `agents` is the namespace of the agents. Objects of other namespaces with the labels of a part
    may belong to a tenant, so nothing is written to them.
    """

    namespace: str
    agents: str
    name: str
    rules: DemandRules
    zero: ZeroQuotas


def scope_of(
    settings: Settings, *, release: str, full_name: str, agents: str, zero: str
) -> RemovalScope:
    """Return the installation that settings and options name. Raises CommandError.

    Without a namespace of the agents, it is that of the chart and of the manifests.
    """
    name = release_names.full_name(release, full_name)
    return RemovalScope(
        namespace=settings.namespace,
        agents=agents or f"{name}-nodes",
        name=name,
        rules=demand_rules(settings),
        zero=ZeroQuotas(zero),
    )

"""The ports of the extender: the ledger, the cluster and the other extenders."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from ledger.kube.api.cluster_ports import BindingApi, EvictionApi
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger_port import Ledger, StateView
from ledger.runtime.counter_protocol import Count, uncounted

Publish = Callable[[bytes], None]
"""Sends an assumed placement to the other extenders; it may be lost."""


class PreemptionCluster(BindingApi, EvictionApi, Protocol):
    """A cluster in which pods are evicted for others."""


class ExtenderPorts(msgspec.Struct, frozen=True):
    """The ledger, the cluster, and the other extenders.

    Without a `cluster` no pod is bound. Pods are evicted in `evicting` alone. `publish` sends
    assumed placements to the other extenders, if there are any.
    """

    ledger: Ledger
    view: StateView
    cluster: BindingApi | None
    rules: Callable[[], DemandRules]
    count: Count = uncounted
    evicting: PreemptionCluster | None = None
    publish: Publish | None = None

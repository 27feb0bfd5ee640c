"""What settlement works with beyond pods and quotas: workloads, policies, and what it writes.

Without it, pods count one by one and ResourceQuotas are only read.
"""

from typing import Protocol

import msgspec

from ledger.kube.api.ports import Governed, Kept, Workloads, Writes
from webhook.context.cluster_context import ClusterContext


class FullCluster(Workloads, Kept, Governed, Writes, Protocol):
    """A cluster's workloads, namespaces and own objects, to be read and written."""


class Beyond(msgspec.Struct, frozen=True):
    """The cluster, and the `context` that reviews use as well."""

    cluster: FullCluster
    context: ClusterContext

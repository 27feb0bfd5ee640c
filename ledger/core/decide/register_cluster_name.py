"""Register a cluster name: decides that a name belongs to one cluster, by its uid."""

from ledger.core.model import commands, events
from ledger.core.model.denials import Decision, Denial, Reason
from ledger.core.model.state import State


def register_cluster(state: State, command: commands.RegisterCluster) -> Decision:
    """Decide that a cluster has a name, which no other cluster may have."""
    known = state.clusters.get(command.cluster)
    if known == command.uid:
        return []
    if known is None:
        return [events.ClusterRegistered(command.cluster, command.uid, command.actor)]
    return Denial(
        Reason.CLUSTER_NAME_TAKEN,
        f"cluster name {command.cluster} is bound to {known}, not to {command.uid}",
        transient=False,
        remedy="Give this cluster another name with --cluster",
        field="cluster",
        value=command.cluster,
    )

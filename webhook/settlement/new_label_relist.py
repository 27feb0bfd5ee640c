"""New label relist: every object is listed again once a quota selects by a label not read before.

Until an object is read again, such a quota counts it with any value of the label.
"""

from ledger.kube.watch.informers import Informers
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.pod_reconciler import PODS
from webhook.settlement.resource_claims.resource_claim_reconciler import RESOURCE_CLAIMS
from webhook.settlement.workloads.workload_informers import WorkloadInformers


class NewLabelRelist:
    """Lists pods, resource claims and workloads again when the recorded labels grow."""

    def __init__(
        self, session: SettlementSession, informers: Informers, *, workloads: WorkloadInformers
    ) -> None:
        self._session = session
        self._informers = informers
        self._workloads = workloads
        self._labels_read = session.context.rules.labels.read

    async def relist_if_due(self) -> None:
        """List everything again if quotas select by labels that no list has read."""
        read = self._session.context.rules.labels.read
        if read > self._labels_read:
            self._workloads.relist()
            self._informers.relist(RESOURCE_CLAIMS)
            self._informers.relist(PODS)
        self._labels_read = read

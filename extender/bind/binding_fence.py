"""The binding fence: proof that no Binding of another extender can be stored any more.

Each Binding to cards names one resourceVersion of the pod, which the ledger has with the placement
(`Placement.version`), and the API server stores it only while the pod is at that version. So once a
linearizable read shows the pod unbound at a later version, every Binding for the earlier one is
refused for ever, also one that is sent after that. Where the pod has not changed by itself, a label
is written first. The later version is the proof, and not the label: admission may remove that,
and then the pod has not changed and nothing is proved.
"""

from contextlib import suppress

from extender.scheduler_api.scheduling_request import version_of
from ledger.kube.api.cluster_ports import BindingApi
from ledger.kube.api.errors import ClusterError
from ledger.kube.api.objects import Pod
from ledger.kube.hami.fence_label import LABEL


class BindingFence:
    """Fences the Bindings of one cluster's pods."""

    def __init__(self, cluster: BindingApi) -> None:
        """Read and write through a cluster."""
        self._cluster = cluster

    async def fence(self, pod: Pod, version: int) -> Pod | None:
        """Make the API server refuse Bindings of `pod` at `version`; return the pod as read then.

        Returns a pod that is bound, or at a later version, where these are refused; None when the
        pod is gone. Any other pod proves nothing. Raises ClusterError, which proves nothing either.
        """
        found = await self._read(pod)
        if found is None or found.spec.node_name or version_of(found) > version:
            return found
        meta = found.metadata
        # The next read shows whether the label was written, also after an unclear answer.
        with suppress(ClusterError):
            labels = {LABEL: str(version)}
            await self._cluster.label_pod(meta.namespace, meta.name, labels, meta.resource_version)
        return await self._read(pod)

    async def _read(self, pod: Pod) -> Pod | None:
        """Read a pod, linearizably; None where it is gone or another one has its name."""
        meta = pod.metadata
        found = await self._cluster.get_pod(meta.namespace, meta.name)
        return found if found is not None and found.metadata.uid == meta.uid else None

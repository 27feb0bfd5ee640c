"""Descriptions: what universe quotas select this cluster and its namespaces by.

A namespace that was deleted goes by its name alone, as one that nobody has described yet.
"""

from ledger.core import accounts
from ledger.core.commands import Describe
from ledger.kube import place_traits
from ledger.kube.objects import Workload
from ledger.kube.port import Change, Changed, Listed
from webhook.tenure import RECOUNTED, WATCHED, Stride, Tenure


class Descriptions:
    """Keeps what the ledger knows of the labels of one cluster and of its namespaces."""

    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    async def tell_cluster(self) -> None:
        """Tell the traits of the cluster itself."""
        traits = self._tenure.settings.cluster_traits
        if traits is not None:
            await self._tell(self._tenure.name, traits, WATCHED)

    async def take(self, change: Change[Workload]) -> None:
        """Tell the ledger what a change of the watch of namespaces means."""
        if isinstance(change, Listed):
            await self._recount(change.objects)
        elif isinstance(change, Changed):
            name = change.object.metadata.name
            labels = None if change.deleted else change.object.metadata.labels
            await self._tell_namespace(name, labels, WATCHED)

    async def _recount(self, namespaces: list[Workload]) -> None:
        tenure, stride = self._tenure, Stride()
        await tenure.courier.flush()
        present = {accounts.qualified(tenure.name, one.metadata.name) for one in namespaces}
        for subject in [one for one in tenure.view.state.described if tenure.owns(one)]:
            await stride.step()
            if subject not in present:
                await self._tell_namespace(subject.partition("/")[2], None, RECOUNTED)
        for one in namespaces:
            await stride.step()
            await self._tell_namespace(one.metadata.name, one.metadata.labels, RECOUNTED)
        await tenure.courier.flush()

    async def _tell_namespace(self, name: str, labels: dict[str, str] | None, actor: str) -> None:
        subject = accounts.qualified(self._tenure.name, name)
        await self._tell(subject, place_traits.of_namespace(name, labels), actor)

    async def _tell(self, subject: str, traits: str, actor: str) -> None:
        tenure = self._tenure
        known = tenure.view.state.described.get(subject)
        if known != traits or tenure.courier.is_pending(subject, ""):
            await tenure.courier.send(Describe(subject, traits, actor))

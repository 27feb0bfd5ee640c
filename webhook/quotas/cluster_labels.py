"""Descriptions: what universe quotas select this cluster and its namespaces by.

A namespace that was deleted is forgotten: it goes by its name alone, as one that nobody has
described yet.
"""

from typing import Final

from ledger.core.model.commands import Describe
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.objects import ObjectMeta, Workload
from ledger.kube.api.ports import Change, Changed, Listed
from ledger.kube.requests import place_traits
from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.settlement_session import RECOUNTED, WATCHED, SettlementSession

NAMESPACES: Final = "namespaces"
"""What their watch is called in readiness."""

GONE: Final = ""
"""The description of what is to be forgotten."""

TELL_SECONDS: Final = 10.0
"""How often it is looked whether the ledger knows the cluster as the settings describe it: what a
replica of older settings said may arrive after what one of newer ones did."""


class ClusterLabels:
    """Keeps what the ledger knows of the labels of one cluster and of its namespaces."""

    def __init__(self, tenure: SettlementSession) -> None:
        self._tenure = tenure

    async def tell_cluster(self) -> None:
        """Tell the traits of the cluster itself."""
        traits = self._tenure.settings.cluster_traits
        if traits is not None:
            await self._tell(self._tenure.name, traits, WATCHED, 0)

    async def take(self, change: Change[Workload]) -> None:
        """Tell the ledger what a change of the watch of namespaces means."""
        if isinstance(change, Listed):
            await self._recount(change)
        elif isinstance(change, Changed):
            meta = change.object.metadata
            traits = GONE if change.deleted else _traits(meta)
            await self._tell(self._subject(meta.name), traits, WATCHED, change.version)

    async def _recount(self, listed: Listed[Workload]) -> None:
        tenure, stride = self._tenure, CooperativeYield()
        await tenure.catch_up()
        present = {self._subject(one.metadata.name) for one in listed.objects}
        for subject in [one for one in tenure.view.state.described if tenure.owns(one)]:
            await stride.step()
            if subject not in present:
                await self._tell(subject, GONE, RECOUNTED, listed.version)
        for meta in (one.metadata for one in listed.objects):
            await stride.step()
            with tenure.failures.taking(NAMESPACES, meta.full_name()):
                await self._tell(self._subject(meta.name), _traits(meta), RECOUNTED, meta.version())
        await tenure.courier.flush()

    async def _tell(self, subject: str, traits: str, actor: str, version: int) -> None:
        tenure = self._tenure
        known = tenure.view.state.described.get(subject, GONE)
        if known != traits or tenure.courier.is_pending(subject, ""):
            await tenure.courier.send(Describe(subject, traits, actor, version))

    def _subject(self, namespace: str) -> str:
        return qualified(self._tenure.name, namespace)


def _traits(meta: ObjectMeta) -> str:
    return place_traits.of_namespace(meta.name, meta.labels)

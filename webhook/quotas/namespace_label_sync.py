"""Namespace label sync: sends the labels of this cluster and its namespaces to the ledger.

`ledger.core.evolve.quota_coverage` decides which quotas then count a namespace.

The labels of a deleted namespace are removed from the ledger. It is then selected by its name
alone, as a namespace whose labels the ledger has not received yet.
"""

from typing import Final

from ledger.core.model.commands import Describe
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import ObjectMeta, Workload
from ledger.kube.requests import namespace_traits
from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.charge_settlement_session import RECOUNTED, WATCHED, SettlementSession

NAMESPACES: Final = "namespaces"
"""Name of the informer of namespaces in readiness."""

REMOVED: Final = ""
"""The traits that remove a namespace's labels from the ledger."""

SEND_SECONDS: Final = 10.0
"""Period of the check of the cluster's traits in the ledger.

The command of a replica with older settings may arrive after that of one with newer settings.
"""


class NamespaceLabelSync:
    """Keeps the ledger's labels of one cluster and of its namespaces up to date."""

    def __init__(self, session: SettlementSession) -> None:
        self._session = session

    async def send_cluster(self) -> None:
        """Queue the traits of the cluster itself, if the ledger has others."""
        traits = self._session.settings.cluster_traits
        if traits is not None:
            await self._send(self._session.name, traits, WATCHED, 0)

    async def take(self, change: Change[Workload]) -> None:
        """Queue the commands that follow from a change of the watch of namespaces."""
        if isinstance(change, Listed):
            await self._recount(change)
        elif isinstance(change, Changed):
            meta = change.object.metadata
            traits = REMOVED if change.deleted else _traits(meta)
            await self._send(self._subject(meta.name), traits, WATCHED, change.version)

    async def _recount(self, listed: Listed[Workload]) -> None:
        session, stride = self._session, CooperativeYield()
        await session.catch_up()
        present = {self._subject(namespace.metadata.name) for namespace in listed.objects}
        for subject in [known for known in session.view.state.described if session.owns(known)]:
            await stride.step()
            if subject not in present:
                await self._send(subject, REMOVED, RECOUNTED, listed.version)
        for meta in (namespace.metadata for namespace in listed.objects):
            await stride.step()
            with session.failures.taking(NAMESPACES, meta.full_name()):
                await self._send(self._subject(meta.name), _traits(meta), RECOUNTED, meta.version())
        await session.commands.flush()

    async def _send(self, subject: str, traits: str, actor: str, version: int) -> None:
        session = self._session
        known = session.view.state.described.get(subject, REMOVED)
        if known != traits or session.commands.is_pending(subject, ""):
            await session.commands.send(Describe(subject, traits, actor, version))

    def _subject(self, namespace: str) -> str:
        return qualified(self._session.name, namespace)


def _traits(meta: ObjectMeta) -> str:
    return namespace_traits.of_namespace(meta.name, meta.labels)

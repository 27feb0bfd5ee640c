"""Card claims: cards are claimed for a pending pod while the pods on them are evicted."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ledger.core.model.cards import Part, Phase, Share
from ledger.core.model.commands import AnyCommand, MakeRoom
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.log.ledger_port import Accepted
from simulation.actors.admitted_writes import AdmittedWrites, now
from simulation.actors.kubelets import Kubelets
from simulation.model.apiserver import counts
from simulation.model.operations import ClaimCards


class CommandReplica(Protocol):
    """A replica that decides commands. `gone` is done when the process has been killed."""

    gone: "asyncio.Future[None]"

    def serves(self) -> bool:
        """Return whether the replica takes commands."""
        ...

    def submitted(self, command: AnyCommand) -> "asyncio.Task[Accepted | Denial]":
        """Start deciding a command."""
        ...


class CardClaims:
    """Makes room in one cluster."""

    def __init__(
        self, writing: AdmittedWrites, kubelets: Kubelets, replicas: Sequence[CommandReplica]
    ) -> None:
        self._server, self._source = writing.server, writing.source
        self._kubelets = kubelets
        self._replicas = replicas

    async def keep(self, operation: ClaimCards) -> None:
        """Have a whole card kept for a pod that waits, and delete those who are on it."""
        pod, nodes = self._server.pick(operation.pick), sorted(self._server.nodes.objects)
        if pod is None or not nodes or pod.spec.node_name or not counts(pod, now()):
            return
        node = nodes[operation.node % len(nodes)][1]
        slabs = self._kubelets.slabs(node)
        if not slabs:
            return
        uuid = slabs[operation.card % len(slabs)].uuid
        victims = self._on(node, uuid)
        answer = await self._decided(self._command(pod, node, uuid, victims))
        if isinstance(answer, Accepted):
            for victim in victims:
                self._server.remove(victim)

    def _command(self, pod: Pod, node: str, uuid: str, victims: list[Pod]) -> MakeRoom:
        cluster, meta = self._server.name, pod.metadata
        share = Share(uuid, 1_000, 100, exclusive=True)
        return MakeRoom(
            f"{cluster}/{meta.namespace}",
            f"pods/{meta.name}",
            meta.uid,
            f"{cluster}/{node}",
            (Part("main", Phase.APP, (share,)),),
            tuple(
                (
                    f"{cluster}/{victim.metadata.namespace}",
                    f"pods/{victim.metadata.name}",
                    victim.metadata.uid,
                )
                for victim in victims
            ),
        )

    def _on(self, node: str, uuid: str) -> list[Pod]:
        """Return the pods on a card, by their Bindings."""
        pods, server = self._server.pods.objects, self._server
        return [
            pods[name]
            for name in sorted(pods)
            if pods[name].spec.node_name == node
            and uuid in server.bindings.get(pods[name].metadata.uid, ())
        ]

    async def _decided(self, command: MakeRoom) -> Accepted | Denial | None:
        serving = [candidate for candidate in self._replicas if candidate.serves()]
        if not serving:
            return None
        replica = self._source.choice(serving)
        answer = replica.submitted(command)
        await asyncio.wait((answer, replica.gone), return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else None

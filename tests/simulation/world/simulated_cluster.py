"""Simulated cluster: its API server, its controllers and its other writers."""

import random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ledger.kube.api.api_resources import POLICIES, UNIVERSE_QUOTAS
from simulation.actors.admission import Admission
from simulation.actors.admitted_writes import AdmittedWrites
from simulation.actors.card_claims import CardClaims
from simulation.actors.claim_controllers import ClaimControllers
from simulation.actors.claim_requests import ClaimRequests
from simulation.actors.controllers import Controllers
from simulation.actors.kubelets import Kubelets
from simulation.actors.pod_requests import PodRequests
from simulation.actors.schedulers import Scheduler
from simulation.actors.workload_requests import WorkloadRequests
from simulation.model import operations
from simulation.model.apiserver import SimulatedApiServer
from simulation.model.operations import Operation
from simulation.oracle.checker import Checker
from simulation.script.operations_author import NAMESPACES
from simulation.world.replica import Replica

_STRICT: Final = (None, {"surge": "strict"})
"""Policies that charge and refuse like none."""


class Actor(Protocol):
    """Something that acts by itself."""

    async def run(self) -> None:
        """Act until cancelled."""
        ...


class SimulatedCluster:
    """One cluster. Its webhooks are served by `replicas`."""

    def __init__(
        self, name: str, source: random.Random, checker: Checker, note: Callable[[str], None]
    ) -> None:
        self.replicas: list[Replica] = []
        self.server = SimulatedApiServer(name, self._written)
        self._checker = checker
        self._note = note
        writing = AdmittedWrites(self.server, Admission(self.replicas, source, note), source)
        self._pods = PodRequests(writing)
        self._roots = WorkloadRequests(writing)
        self.controllers = Controllers(writing, self._pods, self._roots)
        self.kubelets = Kubelets(writing)
        self._claims = ClaimRequests(writing)
        self.claim_controllers = ClaimControllers(writing, self._claims)
        self.schedulers: list[Scheduler] = []
        self._writing = writing
        self._room = CardClaims(writing, self.kubelets, self.replicas)
        checker.attend(self.server)
        for namespace in NAMESPACES:
            self.server.label_namespace(namespace, {})

    def schedule(self, verbs: Iterable[str]) -> None:
        """Have a scheduler for each of these verbs, by which it finds nodes."""
        self.schedulers = [
            Scheduler(f"s{number}", verb, self._writing, self.replicas, self._note)
            for number, verb in enumerate(verbs)
        ]

    def stop(self) -> None:
        """Have nothing made and nothing bound any more."""
        self.controllers.working = self.claim_controllers.working = False
        for scheduler in self.schedulers:
            scheduler.working = False

    async def do(self, operation: Operation) -> None:
        """Do what an operation is about in this cluster."""
        match operation:
            case operations.Create():
                await self._pods.create(operation)
            case operations.Update():
                await self._pods.update(operation)
            case operations.Status():
                await self._pods.status(operation)
            case operations.Delete():
                await self._pods.delete(operation)
            case operations.CreateRoot():
                await self._roots.create(operation)
            case operations.ChangeRoot():
                await self._roots.change(operation)
            case operations.DeleteRoot():
                await self._roots.delete(operation)
            case operations.Progress():
                self._roots.progress(operation)
            case operations.ClaimCards():
                await self._room.keep(operation)
            case operations.CreateClaim():
                await self._claims.create(operation)
            case _:
                self._define(operation)

    def _define(self, operation: Operation) -> None:
        """Write or delete a definition of limits."""
        server = self.server
        match operation:
            case operations.SetQuota(namespace=namespace, name=name, hard=hard, priority=priority):
                server.set_quota(namespace, name, hard, priority)
            case operations.DropQuota(namespace=namespace, name=name):
                server.drop_quota(namespace, name)
            case operations.SetUniverse(name=name, spec=spec):
                server.apply(UNIVERSE_QUOTAS, name, spec)
            case operations.DropUniverse(name=name):
                server.drop(UNIVERSE_QUOTAS, name)
            case operations.LabelNamespace(namespace=namespace, labels=labels):
                server.label_namespace(namespace, labels)
            case operations.SetPolicy(namespace=namespace, spec=policy):
                self._set_policy(namespace, policy)
            case _:
                self._do_on_nodes(operation)

    def _do_on_nodes(self, operation: Operation) -> None:
        match operation:
            case operations.SetNode():
                self.kubelets.set_node(operation)
            case operations.DropNode():
                self.kubelets.drop_node(operation)
            case operations.PlaceByHami():
                self.kubelets.place_elsewise(operation)
            case operations.Annotate():
                self.kubelets.annotate(operation)
            case operations.DeleteClaim():
                self._claims.delete(operation)
            case operations.SetTemplate():
                self._claims.set_template(operation)
            case operations.SetSlice():
                self._claims.set_slice(operation)
            case _:
                raise TypeError(f"nobody does {operation}")

    def _set_policy(self, namespace: str, spec: dict[str, object] | None) -> None:
        if spec not in _STRICT:
            self.server.lenient.add(namespace)
        if spec is None:
            self.server.drop(POLICIES, namespace)
        else:
            self.server.apply(POLICIES, namespace, {"namespaces": [namespace], **spec})

    def _written(self, namespace: str, key: str) -> None:
        server, (kind, _, name) = self.server, key.partition("/")
        collection = server.pods if kind == "pods" else server.others[kind]
        stored = collection.objects.get((namespace, name))
        version = stored.metadata.resource_version if stored is not None else "gone"
        self._note(f"etcd: {server.name}/{namespace}/{key} is now {version}")
        self._checker.written(server, namespace, key)

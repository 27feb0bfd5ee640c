"""Controllers: kube-controller-manager and an operator of one cluster.

They create the pods of objects through admission and under their own names. They scale old
ReplicaSets down as new ones come, and delete objects without an owner.
"""

import asyncio
from typing import Final

import msgspec

from ledger.kube.api.objects import ObjectMeta, OwnerReference, Pod, Workload
from simulation.actors.admitted_writes import AdmittedWrites, WriteMode, WriteOutcome, now
from simulation.actors.pod_requests import PodNaming, PodRequests
from simulation.actors.workload_requests import ORPHANING, WorkloadRequests
from simulation.model import kinds
from simulation.model.apiserver import TERMINAL, counts
from simulation.model.operations import Ending
from simulation.oracle.quota_object_oracle import is_finished

PASS_SECONDS_MAX: Final = 2.0
"""Longest pause between two looks at everything."""

AT_ONCE_MAX: Final = 2
"""Pods that are made for one object in one look."""

BACK_OFF_SECONDS: Final = 6.0
"""Pause after a pod was refused."""

STORED_SHARE: Final = 0.9
"""Share of the controllers' own requests that nothing else happens to."""


class Controllers:
    """Simulates the controllers of one cluster. While `working` is False they make no objects."""

    def __init__(self, writing: AdmittedWrites, pods: PodRequests, roots: WorkloadRequests) -> None:
        self.working = True
        self._writing = writing
        self._server = writing.server
        self._source = writing.source
        self._pods = pods
        self._roots = roots
        self._not_before: dict[str, float] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(0.5 + self._source.random() * PASS_SECONDS_MAX)
            self._collect()
            for root in self._server.roots() if self.working else ():
                await self._serve(root)

    def _collect(self) -> None:
        """Remove what belongs to nothing any more, and what goes before its owner."""
        roots = {root.metadata.uid: root for root in self._server.roots()}
        going = {uid for uid, root in roots.items() if _goes_last(root)}
        controlled = set()
        pods = self._server.pods.objects
        everything: list[Pod | Workload] = [
            *roots.values(), *(pods[name] for name in sorted(pods))
        ]  # fmt: skip
        for item in everything:
            owner = item.metadata.controller()
            if owner is None or not owner.api_version:
                continue
            controlled.add(owner.uid)
            if owner.uid not in roots or owner.uid in going:
                self._server.remove(item)
        for uid in sorted(going - controlled):
            self._server.remove(roots[uid])

    async def _serve(self, root: Workload) -> None:
        """Do what an object asks for, unless it is going or was refused a moment ago."""
        stored = self._server.stored(root)
        if stored is None or stored.metadata.deletion_timestamp is not None:
            return
        if self._not_before.get(stored.metadata.uid, 0.0) > now():
            return
        if stored.kind == kinds.DEPLOYMENTS.kind:
            await self._roll_out(stored)
        else:
            self._report(stored)
            await self._make_pods(stored)

    async def _roll_out(self, deployment: Workload) -> None:
        """Have a ReplicaSet of the newest template, and none of the others keep pods."""
        pods, newest = kinds.templates_of(deployment)[0], None
        for replica_set in self._sets_of(deployment):
            if kinds.templates_of(replica_set)[0] == pods and newest is None:
                newest = replica_set
            elif kinds.count_of(replica_set):
                await self._scale(deployment, replica_set, 0)
        wanted = kinds.count_of(deployment)
        if newest is None:
            await self._make_set(deployment, wanted, pods)
        elif kinds.count_of(newest) != wanted:
            await self._scale(deployment, newest, wanted)

    def _sets_of(self, deployment: Workload) -> list[Workload]:
        return [root for root in self._server.roots() if _is_of(root.metadata, deployment)]

    async def _scale(self, deployment: Workload, replica_set: Workload, count: int) -> None:
        stored = self._server.stored(replica_set)
        if stored is not None:
            manner = self._manner(deployment)
            self._note(deployment, await self._roots.scale(stored, count, manner))

    async def _make_set(self, deployment: Workload, count: int, pods: kinds.Manifest) -> None:
        server, meta = self._server, deployment.metadata
        uid = server.fresh_uid()
        made = ObjectMeta(
            name=f"{meta.name}-{uid}",
            namespace=meta.namespace,
            uid=uid,
            owner_references=[kinds.reference_to(deployment)],
        )
        resource = kinds.REPLICASETS
        spec = kinds.spec_of(resource, count, pods)
        replica_set = Workload(resource.api_version, resource.kind, made, spec)
        outcome = await self._roots.post(replica_set, self._manner(deployment), part=True)
        self._note(deployment, outcome)

    def _report(self, root: Workload) -> None:
        """Write into a Job's status how many of its pods succeeded, and that it is over."""
        if root.kind != kinds.JOBS.kind or is_finished(root):
            return
        done = sum(pod.status.phase == "Succeeded" for pod in self._pods_of(root))
        before = int((root.status or {}).get("succeeded", 0))
        if done <= before:
            return
        status: kinds.Manifest = {"succeeded": done}
        if done >= int((root.spec or {})["completions"]):
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        self._server.write(msgspec.structs.replace(root, status=status), root.metadata.version())

    async def _make_pods(self, root: Workload) -> None:
        """Make the pods that are missing, and remove those that are too many or have ended."""
        pods = self._pods_of(root)
        alive = [pod for pod in pods if counts(pod, now())]
        if root.kind != kinds.JOBS.kind:
            for pod in pods:
                if pod.status.phase in TERMINAL:
                    self._server.remove(pod)
        wanted = _wanted(root)
        for pod in alive[wanted:]:
            self._server.remove(pod)
        for number in range(len(alive), min(wanted, len(alive) + AT_ONCE_MAX)):
            templates = kinds.templates_of(root)
            pods_of = templates[0] if number == 0 else templates[-1]
            if not await self._make_pod(root, pods_of):
                return

    async def _make_pod(self, root: Workload, pods: kinds.Manifest) -> bool:
        namespace = root.metadata.namespace
        labels = {**pods["metadata"].get("labels", {}), **(root.metadata.labels or {})}
        labelled = {**pods, "metadata": {"labels": labels} if labels else {}}
        pod = kinds.pod_of(labelled, namespace, kinds.reference_to(root))
        outcome = await self._pods.post(pod, PodNaming(), self._manner(root))
        self._note(root, outcome)
        return outcome is WriteOutcome.DONE

    def _pods_of(self, root: Workload) -> list[Pod]:
        pods = self._server.pods.objects
        return [pods[name] for name in sorted(pods) if _is_of(pods[name].metadata, root)]

    def _manner(self, root: Workload) -> WriteMode:
        ending = Ending.STORED
        if self._source.random() > STORED_SHARE:
            ending = self._source.choice(list(Ending))
        user = kinds.controller_of(kinds.resource_of(root))
        return WriteMode(user, ending, self._source.random())

    def _note(self, root: Workload, outcome: WriteOutcome) -> None:
        if outcome is WriteOutcome.REFUSED:
            self._not_before[root.metadata.uid] = now() + BACK_OFF_SECONDS


def _is_of(meta: ObjectMeta, owner: Workload) -> bool:
    """Return whether an object names another one as its controller, and may do so."""
    reference: OwnerReference | None = meta.controller()
    if reference is None or meta.namespace != owner.metadata.namespace:
        return False
    return reference.uid == owner.metadata.uid


def _goes_last(root: Workload) -> bool:
    """Return whether an object waits for what it controls to go."""
    meta = root.metadata
    return meta.deletion_timestamp is not None and meta.annotations != ORPHANING


def _wanted(root: Workload) -> int:
    """Return how many pods an object is to have now."""
    spec = root.spec or {}
    if root.kind == kinds.JOBS.kind:
        if spec.get("suspend") or is_finished(root):
            return 0
        left = int(spec["completions"]) - int((root.status or {}).get("succeeded", 0))
        return max(0, min(kinds.count_of(root), left))
    return kinds.count_of(root) + (root.kind == kinds.TRAININGS.kind)

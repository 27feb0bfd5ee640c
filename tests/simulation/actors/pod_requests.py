"""Pod requests: the writes of pods by users, controllers and kubelets, with their retries.

A taken generated name is tried again with a new uid. An update of an outdated object is reviewed
again on the new one.
"""

import asyncio
from typing import Final

import msgspec

from ledger.core.model.amounts import covers
from ledger.kube.api.objects import OwnerReference, Pod, Resources
from simulation.actors.admitted_writes import (
    REFUSED_BY_OTHERS,
    AdmittedWrites,
    Review,
    WriteMode,
    WriteOutcome,
    now,
)
from simulation.model import kinds, resource_claims
from simulation.model.apiserver import Conflict, Name, at, counts
from simulation.model.operations import Create, Delete, Ending, Status, Update
from simulation.model.settings import USERS, demand
from webhook.admission.reserved_annotations import STAMP

GENERATED_TRIES: Final = 8
"""How often the API server tries a generated name."""

COPIED: Final = (Ending.STORED, Ending.STORED, Ending.LATE, Ending.UNKNOWN)
"""Chances of copies: they are large, so some are stored when others were reviewed."""

COPIED_SECONDS: Final = 1.0
"""How late copies are stored at most."""

UPDATE_TRIES: Final = 5
ROUND_SECONDS_MAX: Final = 8.0


class PodNaming(msgspec.Struct, frozen=True):
    """How a pod gets its name: `name` empty means generated, so many times one that is taken."""

    name: str = ""
    collisions: int = 0


class PodRequests:
    """Performs the operations of a script that are about pods."""

    def __init__(self, writing: AdmittedWrites) -> None:
        self._writing = writing
        self._server = writing.server
        self._source = writing.source

    async def create(self, operation: Create) -> None:
        """Post a pod, and again when that fails, as a controller does."""
        manner = WriteMode(
            f"{USERS}{operation.owner}", operation.ending, operation.late, operation.dry_run
        )
        naming = PodNaming(operation.name, operation.collisions)
        if operation.copies:
            await self._copy(operation, naming, manner)
            return
        for _ in range(operation.retries + 1):
            pod, forged = self._pod(operation)
            if forged and manner.ending is Ending.BEYOND:
                # When the pod is observed long after, no object is left that names its maker.
                manner = msgspec.structs.replace(manner, ending=Ending.LATE)
            if operation.unreviewed:
                outcome = self._post_unreviewed(pod, naming)
            else:
                outcome = await self.post(pod, naming, manner, forged=forged)
            if outcome is WriteOutcome.DONE:
                return
            if manner.ending not in REFUSED_BY_OTHERS:
                manner = msgspec.structs.replace(manner, ending=Ending.STORED)
            await asyncio.sleep(self._source.random())

    async def post(
        self, pod: Pod, naming: PodNaming, manner: WriteMode, *, forged: bool = False
    ) -> WriteOutcome:
        """Post a pod once, with all tries of its name."""
        writing = self._writing
        pod = await writing.admission.mutate(writing.request("CREATE", pod, None, manner), pod)
        for number in range(1 if naming.name else GENERATED_TRIES):
            tried = self._named(pod, naming, number)
            review = await writing.reviewed(
                writing.request("CREATE", tried, None, manner), manner.ending
            )
            if review is Review.REFUSED:
                return WriteOutcome.REFUSED
            if manner.dry_run:
                return WriteOutcome.DONE
            admitted = writing.admitted(review, pod.metadata.namespace)
            if forged and review is Review.CHARGED:
                self._server.barred.add(tried.metadata.uid)
            outcome = await writing.store(tried, 0, manner, reviewed=admitted)
            if outcome is not WriteOutcome.TAKEN:
                return outcome
        return WriteOutcome.FAILED

    async def _copy(self, operation: Create, naming: PodNaming, manner: WriteMode) -> None:
        """Post copies of what a dry run shows at once; some are stored late.

        All carry one annotation, as those did that earlier versions took for one request.
        """
        pod, forged = self._pod(operation)
        dry = msgspec.structs.replace(manner, dry_run=True)
        writing, source = self._writing, self._source
        shown = await writing.admission.mutate(writing.request("CREATE", pod, None, dry), pod)
        annotations = {**(shown.metadata.annotations or {}), STAMP: self._server.fresh_uid()}
        meta = msgspec.structs.replace(shown.metadata, annotations=annotations)
        copy = msgspec.structs.replace(shown, metadata=meta)
        await asyncio.gather(
            *(
                self.post(
                    copy,
                    naming,
                    WriteMode(manner.user, source.choice(COPIED), source.random() * COPIED_SECONDS),
                    forged=forged,
                )
                for _ in range(operation.copies)
            )
        )

    async def update(self, operation: Update) -> None:
        """Let several clients write one pod at the same time."""
        pod = self._server.pick(operation.pick)
        if pod is not None:
            name = pod.metadata.namespace, pod.metadata.name
            await asyncio.gather(
                *(self._insist(operation, name, memory) for memory in operation.memories)
            )

    async def status(self, operation: Status) -> None:
        """Report a phase, unless the pod has already ended."""
        pod = self._server.pick(operation.pick)
        if pod is not None and counts(pod, now()):
            status = msgspec.structs.replace(pod.status, phase=operation.phase)
            reported = msgspec.structs.replace(pod, status=status)
            self._server.write(reported, pod.metadata.version())

    async def delete(self, operation: Delete) -> None:
        """Delete a pod, at once or with grace."""
        pod = self._server.pick(operation.pick)
        if pod is None:
            return
        meta = pod.metadata
        if not operation.grace:
            self._server.remove(pod)
            return
        if meta.deletion_timestamp is None:
            marked = msgspec.structs.replace(
                meta,
                deletion_timestamp=at(now() + operation.grace),
                deletion_grace_period_seconds=operation.grace,
            )
            self._server.write(msgspec.structs.replace(pod, metadata=marked), meta.version())
        if operation.confirm >= 0:
            await asyncio.sleep(operation.confirm)
            self._server.remove(pod)

    def _pod(self, operation: Create) -> tuple[Pod, bool]:
        """Return the pod of an operation, and whether it names a controller that it is not of."""
        owner = operation.owner
        # Of no kind that is known: it counts as an owner and leads nowhere.
        reference = OwnerReference("Other", owner, owner, controller=True) if owner else None
        forged = self._victim(operation.namespace) if operation.forged else None
        pods = kinds.template(
            operation.gpus,
            operation.memory,
            operation.app,
            operation.priority,
            operation.cores,
            resource_claims.uses(operation.template, operation.claims),
        )
        return kinds.pod_of(pods, operation.namespace, forged or reference), forged is not None

    def _victim(self, namespace: str) -> OwnerReference | None:
        """Return a reference to something that makes pods in a namespace."""
        roots = [root for root in self._server.roots() if root.metadata.namespace == namespace]
        return kinds.reference_to(self._source.choice(roots)) if roots else None

    def _post_unreviewed(self, pod: Pod, naming: PodNaming) -> WriteOutcome:
        """Store a pod that no webhook has seen: it was not registered just then."""
        try:
            self._server.write(self._named(pod, naming, 0), 0, reviewed=False)
        except Conflict:
            return WriteOutcome.TAKEN
        return WriteOutcome.DONE

    def _named(self, pod: Pod, naming: PodNaming, number: int) -> Pod:
        """Give a pod its uid and, where it is generated, its name, which may be taken already."""
        uid, name = self._server.fresh_uid(), naming.name
        if not name:
            name = f"g-{uid}"
            namespace = pod.metadata.namespace
            taken = sorted(
                pod_name for space, pod_name in self._server.pods.objects if space == namespace
            )
            if number < naming.collisions and taken:
                name = self._source.choice(taken)
        meta = msgspec.structs.replace(pod.metadata, uid=uid, name=name)
        return msgspec.structs.replace(pod, metadata=meta)

    async def _insist(self, operation: Update, name: Name, memory: int) -> None:
        """Send an update again when others refuse it, as a controller does."""
        manner = WriteMode("user-", operation.ending, operation.late, operation.dry_run)
        if manner.ending in REFUSED_BY_OTHERS:
            for _ in range(operation.rounds):
                await self._update(operation, name, memory, manner)
                await asyncio.sleep(self._source.random() * ROUND_SECONDS_MAX)
            manner = msgspec.structs.replace(manner, ending=operation.last)
        await self._update(operation, name, memory, manner)

    async def _update(self, operation: Update, name: Name, memory: int, manner: WriteMode) -> None:
        writing = self._writing
        for number in range(UPDATE_TRIES):
            stored = self._server.pods.objects.get(name)
            if stored is None or not counts(stored, now()) or self._is_foreign(stored):
                return
            old = self._older(stored) if operation.stale and not number else stored
            # Kubernetes lets no client change what a pod with claims asks of cards.
            changed = _changed(old, 0 if old.spec.resource_claims else memory)
            request = writing.request("UPDATE", changed, old, manner)
            review = await writing.reviewed(request, manner.ending)
            if review is Review.REFUSED:
                if old is stored:
                    return
                continue  # refused on stale data: the API server tries once more on fresh data
            if operation.dry_run or changed == old:
                return
            admitted = writing.admitted(review, stored.metadata.namespace)
            outcome = await writing.store(
                changed,
                old.metadata.version(),
                manner,
                reviewed=None if covers(demand(old), demand(changed)) else admitted,
            )
            if outcome is not WriteOutcome.TAKEN or not operation.repeat:
                return

    def _is_foreign(self, pod: Pod) -> bool:
        """Return whether another scheduler placed a pod: its cards are then in its annotations."""
        return pod.metadata.uid in self._server.foreign

    def _older(self, stored: Pod) -> Pod:
        """Return an earlier version of a pod, as a cache may still have it."""
        uid = stored.metadata.uid
        earlier = [
            change.object
            for change in self._server.pods.history
            if change.object.metadata.uid == uid and not change.deleted
        ]
        return earlier[-2] if len(earlier) > 1 else stored


def _changed(pod: Pod, memory: int) -> Pod:
    """Return a pod that asks for another memory or, with 0, has another label."""
    if not memory:
        labels = {"touched": pod.metadata.resource_version}
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)
        )
    container = (pod.spec.containers or [])[0]
    limits = dict((container.resources or Resources()).limits or {})
    limits[kinds.MEMORY] = str(memory)
    changed = msgspec.structs.replace(container, resources=Resources(limits=limits))
    spec = msgspec.structs.replace(pod.spec, containers=[changed])
    return msgspec.structs.replace(pod, spec=spec)

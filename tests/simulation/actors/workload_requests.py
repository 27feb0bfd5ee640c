"""Workload requests: objects that create pods are created, changed, scaled and deleted."""

import asyncio
from typing import Final

import msgspec

from ledger.core.model.amounts import covers
from ledger.kube.api.objects import ObjectMeta, OwnerReference, Pod, Workload
from simulation.actors.admitted_writes import (
    REFUSED_BY_OTHERS,
    AdmittedWrites,
    Review,
    WriteMode,
    WriteOutcome,
    now,
)
from simulation.model import kinds, resource_claims
from simulation.model.apiserver import Conflict, at
from simulation.model.operations import (
    ChangeRoot,
    CreateRoot,
    DeleteRoot,
    Deletion,
    Ending,
    Progress,
)
from simulation.oracle.quota_object_oracle import envelope

UPDATE_TRIES: Final = 5
USER: Final = "user-of-roots"
GPUS: Final = 1

ORPHANING: Final = {"deletion": "orphan"}
"""The annotation of an object that waits for what it controls to be let go."""

ORPHANING_SECONDS_MAX: Final = 0.5
ORPHANING_ROUNDS_MAX: Final = 40


class WorkloadRequests:
    """Performs the operations of a script that are about objects that make pods."""

    def __init__(self, writing: AdmittedWrites) -> None:
        self._writing = writing
        self._server = writing.server
        self._source = writing.source

    async def create(self, operation: CreateRoot) -> None:
        """Post an object, and again when that fails."""
        manner = WriteMode(USER, operation.ending, operation.late, operation.dry_run)
        for _ in range(operation.retries + 1):
            root, forged = self._root(operation)
            if forged and manner.ending is Ending.BEYOND:
                # When the object is observed long after, no object is left that names its maker.
                manner = msgspec.structs.replace(manner, ending=Ending.LATE)
            if operation.unreviewed:
                outcome = self._post_unreviewed(root)
            else:
                outcome = await self.post(root, manner, forged=forged)
            if outcome is WriteOutcome.DONE:
                return
            if manner.ending not in REFUSED_BY_OTHERS:
                manner = msgspec.structs.replace(manner, ending=Ending.STORED)
            await asyncio.sleep(self._source.random())

    async def post(
        self, root: Workload, manner: WriteMode, *, forged: bool = False, part: bool = False
    ) -> WriteOutcome:
        """Post an object once; what is `part` of another root is not charged itself."""
        writing = self._writing
        review = await writing.reviewed(
            writing.request("CREATE", root, None, manner), manner.ending
        )
        if review is Review.REFUSED:
            return WriteOutcome.REFUSED
        if manner.dry_run:
            return WriteOutcome.DONE
        if forged and review is Review.CHARGED:
            self._server.barred.add(root.metadata.uid)
        admitted = not part and writing.admitted(review, root.metadata.namespace)
        return await writing.store(root, 0, manner, reviewed=admitted)

    async def change(self, operation: ChangeRoot) -> None:
        """Let several clients write one object at the same time."""
        root = self._server.pick_root(operation.pick)
        if root is not None:
            manner = WriteMode(USER, operation.ending, operation.late, operation.dry_run)
            await asyncio.gather(
                *(
                    self._change(operation, root, client, manner)
                    for client in range(len(operation.counts))
                )
            )

    async def scale(self, root: Workload, count: int, manner: WriteMode) -> WriteOutcome:
        """Change a count through the scale subresource."""
        writing = self._writing
        request = writing.scale_request(root, count, manner)
        review = await writing.reviewed(request, manner.ending, ignoring=True)
        if review is Review.REFUSED:
            return WriteOutcome.REFUSED
        if manner.dry_run:
            return WriteOutcome.DONE
        return await self._write(root, kinds.with_count(root, count), manner, review)

    def progress(self, operation: Progress) -> None:
        """Report how far a Job has come."""
        jobs = [root for root in self._server.roots() if root.kind == kinds.JOBS.kind]
        if not jobs:
            return
        job = jobs[operation.pick % len(jobs)]
        status: kinds.Manifest = {"succeeded": operation.succeeded}
        if operation.complete:
            status["conditions"] = [{"type": "Complete", "status": "True"}]
        elif any((job.status or {}).get("conditions", ())):
            return  # nothing comes after the end
        self._server.write(msgspec.structs.replace(job, status=status), job.metadata.version())

    async def delete(self, operation: DeleteRoot) -> None:
        """Delete an object; what it controls goes later, or first, or stays."""
        root = self._server.pick_root(operation.pick)
        if root is None or root.metadata.deletion_timestamp is not None:
            return
        if operation.deletion is Deletion.BACKGROUND:
            self._server.remove(root)
            return
        orphaning = operation.deletion is Deletion.ORPHAN
        meta = msgspec.structs.replace(
            root.metadata,
            deletion_timestamp=at(now()),
            annotations=ORPHANING if orphaning else None,
        )
        self._server.write(msgspec.structs.replace(root, metadata=meta), root.metadata.version())
        if orphaning:
            await self._orphan(root)

    async def _orphan(self, owner: Workload) -> None:
        """Take the reference away from what an object controls, then remove the object."""
        for _ in range(ORPHANING_ROUNDS_MAX):
            await asyncio.sleep(self._source.random() * ORPHANING_SECONDS_MAX)
            left = self._controlled(owner.metadata.uid)
            if not left:
                self._server.remove(owner)
                return
            for item in left:
                meta = msgspec.structs.replace(item.metadata, owner_references=None)
                freed = msgspec.structs.replace(item, metadata=meta)
                self._server.write(freed, item.metadata.version())

    def _controlled(self, uid: str) -> list[Pod | Workload]:
        pods = self._server.pods.objects
        everything: list[Pod | Workload] = [
            *self._server.roots(),
            *(pods[name] for name in sorted(pods)),
        ]
        return [
            item
            for item in everything
            if (owner := item.metadata.controller()) is not None and owner.uid == uid
        ]

    def _root(self, operation: CreateRoot) -> tuple[Workload, bool]:
        """Return the object of an operation, and whether it names what has not made it."""
        resource = kinds.ROOTS[operation.kind]
        owner = self._victim(operation) if operation.forged else None
        meta = ObjectMeta(
            name=operation.name,
            namespace=operation.namespace,
            uid=self._server.fresh_uid(),
            labels={kinds.APP: operation.app} if operation.app else None,
            owner_references=[owner] if owner is not None else None,
        )
        claims = resource_claims.uses(operation.template)
        pods = kinds.template(GPUS, operation.memory, "", operation.priority, claims=claims)
        spec = kinds.spec_of(resource, operation.count, pods)
        return Workload(resource.api_version, resource.kind, meta, spec), owner is not None

    def _victim(self, operation: CreateRoot) -> OwnerReference | None:
        """Return a reference to something that is charged in a namespace."""
        roots = [
            root
            for root in self._server.roots()
            if root.metadata.namespace == operation.namespace
            and root.metadata.name != operation.name
        ]
        return kinds.reference_to(self._source.choice(roots)) if roots else None

    def _post_unreviewed(self, root: Workload) -> WriteOutcome:
        """Store an object that no webhook has seen: it was not registered just then."""
        try:
            self._server.write(root, 0, reviewed=False)
        except Conflict:
            return WriteOutcome.TAKEN
        return WriteOutcome.DONE

    async def _change(
        self, operation: ChangeRoot, picked: Workload, client: int, manner: WriteMode
    ) -> None:
        count, scaling = operation.counts[client], operation.scale and not client % 2
        for number in range(UPDATE_TRIES):
            stored = self._server.stored(picked)
            if stored is None:
                return
            old = self._older(stored) if operation.stale and not number else stored
            if scaling and stored.kind != kinds.JOBS.kind:
                outcome = await self.scale(old, count, manner)
            else:
                outcome = await self._update(old, _changed(old, operation, count), manner)
            if outcome is WriteOutcome.REFUSED and old is not stored:
                continue  # refused on stale data: the API server tries once more on fresh data
            if outcome is not WriteOutcome.TAKEN or not operation.repeat:
                return

    async def _update(self, old: Workload, changed: Workload, manner: WriteMode) -> WriteOutcome:
        writing = self._writing
        meta = msgspec.structs.replace(
            changed.metadata,
            generation=old.metadata.generation + (changed.spec != old.spec),
        )
        request = writing.request(
            "UPDATE", msgspec.structs.replace(changed, metadata=meta), old, manner
        )
        review = await writing.reviewed(request, manner.ending)
        if review is Review.REFUSED:
            return WriteOutcome.REFUSED
        if manner.dry_run or changed == old:
            return WriteOutcome.DONE
        return await self._write(old, changed, manner, review)

    async def _write(
        self, old: Workload, changed: Workload, manner: WriteMode, review: Review
    ) -> WriteOutcome:
        """Store a change. Demand that was not requested is charged when it is observed."""
        reviewed: bool | None = review is Review.CHARGED
        if covers(envelope(old), envelope(changed)):
            reviewed = None
        return await self._writing.store(changed, old.metadata.version(), manner, reviewed=reviewed)

    def _older(self, stored: Workload) -> Workload:
        """Return an earlier version of an object, as a cache may still have it."""
        history = self._server.others[kinds.resource_of(stored).name].history
        uid = stored.metadata.uid
        earlier = [
            change.object
            for change in history
            if change.object.metadata.uid == uid and not change.deleted
        ]
        return earlier[-2] if len(earlier) > 1 else stored


def _changed(old: Workload, operation: ChangeRoot, count: int) -> Workload:
    """Return an object as an operation would have it."""
    changed = kinds.with_count(old, count)
    if operation.memory:
        last = kinds.templates_of(old)[-1]["spec"]
        priority, claims = last.get("priorityClassName", ""), last.get("resourceClaims")
        pods = kinds.template(GPUS, operation.memory, "", priority, claims=claims)
        changed = kinds.with_templates(changed, pods)
    if operation.suspend is not None and old.kind == kinds.JOBS.kind:
        spec = {**(changed.spec or {}), "suspend": operation.suspend}
        changed = msgspec.structs.replace(changed, spec=spec)
    if operation.app:
        meta = msgspec.structs.replace(old.metadata, labels={kinds.APP: operation.app})
        changed = msgspec.structs.replace(changed, metadata=meta)
    return changed

"""Requests: what a client sends and everything that the API server does with it.

Admission runs for every try of a write, as in a real API server: a generated name that is taken is
tried again with a new uid, an update whose base is no longer stored is reviewed again on the new
one. After this webhook's yes anything may still happen: see `script.Ending`.
"""

import asyncio
import random
from enum import Enum, auto
from typing import Any, Final

import msgspec

from gpuledger.simulation.admission import Admission
from gpuledger.simulation.apiserver import EPOCH, ApiServer, Conflict, Name, at, counts
from gpuledger.simulation.script import SETTLE_SECONDS, Create, Delete, Ending, Status, Update
from ledger.core.amounts import Amounts, covers
from ledger.core.denials import Denial
from ledger.kube.demand import demand_of
from ledger.kube.objects import (
    Container,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Resources,
)
from ledger.kube.rules import DemandRules
from webhook.review import GroupKind, GroupResource, Request, UserInfo

GENERATED_TRIES: Final = 8
"""How often the API server tries a generated name."""

UPDATE_TRIES: Final = 5
ETCD_SECONDS_MAX: Final = 0.02
ROUND_SECONDS_MAX: Final = 8.0
BEYOND_SECONDS: Final = 1.5 * SETTLE_SECONDS
RULES: Final = DemandRules()

_GPU: Final = "nvidia.com/gpu"
_MEMORY: Final = "nvidia.com/gpumem"
_POD: Final = GroupKind(kind="Pod")
_PODS: Final = GroupResource(resource="pods")
_BY_WEBHOOK_OR_QUOTA: Final = (Ending.DENIED_BY_WEBHOOK, Ending.DENIED_BY_QUOTA)


class _Outcome(Enum):
    DONE = auto()
    REFUSED = auto()
    TAKEN = auto()
    FAILED = auto()


class Requests:
    """Performs the operations of a script that go to the API server."""

    def __init__(self, server: ApiServer, admission: Admission, source: random.Random) -> None:
        self._server = server
        self._admission = admission
        self._source = source
        self._calls = 0

    async def create(self, operation: Create) -> None:
        """Post a pod, and again when that fails, as a controller does."""
        ending = operation.ending
        for _ in range(operation.retries + 1):
            outcome = await self._create(operation, ending)
            if outcome is _Outcome.DONE:
                return
            if ending not in _BY_WEBHOOK_OR_QUOTA:
                ending = Ending.STORED
            await asyncio.sleep(self._source.random())

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
        if pod is not None and counts(pod, _now()):
            reported = msgspec.structs.replace(pod, status=PodStatus(phase=operation.phase))
            self._server.write_pod(reported, pod.metadata.version())

    async def delete(self, operation: Delete) -> None:
        """Delete a pod, at once or with grace."""
        pod = self._server.pick(operation.pick)
        if pod is None:
            return
        meta = pod.metadata
        name = meta.namespace, meta.name
        if not operation.grace:
            self._server.remove_pod(name, meta.uid)
            return
        if meta.deletion_timestamp is None:
            marked = msgspec.structs.replace(
                meta,
                deletion_timestamp=at(_now() + operation.grace),
                deletion_grace_period_seconds=operation.grace,
            )
            terminating = msgspec.structs.replace(pod, metadata=marked)
            self._server.write_pod(terminating, meta.version())
        if operation.confirm >= 0:
            await asyncio.sleep(operation.confirm)
            self._server.remove_pod(name, meta.uid)

    async def _create(self, operation: Create, ending: Ending) -> _Outcome:
        pod = _pod(operation)
        if operation.unreviewed:
            return self._post_unreviewed(pod, operation)
        request = self._request("CREATE", pod, None, operation.owner, operation.dry_run)
        pod = await self._admission.mutate(request, pod)
        for number in range(1 if operation.name else GENERATED_TRIES):
            tried = self._named(pod, operation, number)
            request = self._request("CREATE", tried, None, operation.owner, operation.dry_run)
            if not await self._reviewed(request, ending):
                return _Outcome.REFUSED
            if operation.dry_run:
                return _Outcome.DONE
            outcome = await self._store(tried, 0, ending, operation.late, reviewed=True)
            if outcome is not _Outcome.TAKEN:
                return outcome
        return _Outcome.FAILED

    def _post_unreviewed(self, pod: Pod, operation: Create) -> _Outcome:
        """Store a pod that no webhook has seen: it was not registered just then."""
        try:
            self._server.write_pod(self._named(pod, operation, 0), 0, reviewed=False)
        except Conflict:
            return _Outcome.TAKEN
        return _Outcome.DONE

    def _named(self, pod: Pod, operation: Create, number: int) -> Pod:
        """Give a pod its uid and, where it is generated, its name, which may be taken already."""
        uid, name = self._server.fresh_uid(), operation.name
        if not name:
            name = f"g-{uid}"
            taken = sorted(
                one for space, one in self._server.pods.objects if space == operation.namespace
            )
            if number < operation.collisions and taken:
                name = self._source.choice(taken)
        meta = msgspec.structs.replace(pod.metadata, uid=uid, name=name)
        return msgspec.structs.replace(pod, metadata=meta)

    async def _insist(self, operation: Update, name: Name, memory: int) -> None:
        """Send an update again when others refuse it, as a controller does."""
        ending = operation.ending
        if ending in _BY_WEBHOOK_OR_QUOTA:
            for _ in range(operation.rounds):
                await self._update(operation, name, memory, ending)
                await asyncio.sleep(self._source.random() * ROUND_SECONDS_MAX)
            ending = operation.last
        await self._update(operation, name, memory, ending)

    async def _update(self, operation: Update, name: Name, memory: int, ending: Ending) -> None:
        for number in range(UPDATE_TRIES):
            stored = self._server.pods.objects.get(name)
            if stored is None or not counts(stored, _now()):
                return
            old = self._older(stored) if operation.stale and not number else stored
            changed = _changed(old, memory)
            request = self._request("UPDATE", changed, old, "", operation.dry_run)
            if not await self._reviewed(request, ending):
                if old is stored:
                    return
                continue  # refused on stale data: the API server tries once more on fresh data
            if operation.dry_run or changed == old:
                return
            outcome = await self._store(
                changed,
                old.metadata.version(),
                ending,
                operation.late,
                reviewed=None if covers(_amounts(old), _amounts(changed)) else True,
            )
            if outcome is not _Outcome.TAKEN or not operation.repeat:
                return

    def _older(self, stored: Pod) -> Pod:
        """Return an earlier version of a pod, as a cache may still have it."""
        uid = stored.metadata.uid
        earlier = [
            change.object
            for change in self._server.pods.history
            if change.object.metadata.uid == uid and not change.deleted
        ]
        return earlier[-2] if len(earlier) > 1 else stored

    async def _reviewed(self, request: Request, ending: Ending) -> bool:
        """Ask all webhooks; they are asked at the same time, and one no is enough."""
        if ending is Ending.CLIENT_GONE:
            self._admission.ask_in_vain(request)
            return False
        allowed = await self._admission.validate(request)
        if ending in (*_BY_WEBHOOK_OR_QUOTA, Ending.ANSWER_LOST):
            return False
        return allowed

    async def _store(
        self, pod: Pod, base: int, ending: Ending, late: float, *, reviewed: bool | None
    ) -> _Outcome:
        attempt = pod.metadata.uid, base
        counted = int(bool(reviewed) and ending is not Ending.BEYOND)
        self._server.pending[attempt] += counted

        def write() -> _Outcome:
            self._server.pending[attempt] -= counted
            try:
                self._server.write_pod(pod, base, reviewed=reviewed)
            except Conflict:
                return _Outcome.TAKEN
            return _Outcome.DONE

        await asyncio.sleep(self._source.random() * ETCD_SECONDS_MAX)

        if ending is Ending.LOST:
            self._server.pending[attempt] -= counted
            return _Outcome.FAILED
        if ending in (Ending.LATE, Ending.BEYOND):
            if ending is Ending.BEYOND:
                # Nobody can have kept room for it; it is charged when it is seen.
                late, reviewed = late + BEYOND_SECONDS, False
            asyncio.get_running_loop().call_later(late, write)
            return _Outcome.FAILED
        outcome = write()
        return _Outcome.FAILED if ending is Ending.UNKNOWN else outcome

    def _request(
        self, operation: str, pod: Pod, old: Pod | None, owner: str, dry_run: bool
    ) -> Request:
        self._calls += 1
        return Request(
            f"call-{self._calls}",
            operation,
            _POD,
            _PODS,
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            user_info=UserInfo(f"user-{owner}"),
            object=_raw(pod),
            old_object=_raw(old),
            dry_run=dry_run,
        )


def demand(pod: Pod) -> Amounts:
    """Return what a pod of the simulation asks for."""
    return _amounts(pod)


def _amounts(pod: Pod) -> Amounts:
    found = demand_of(pod, RULES)
    assert not isinstance(found, Denial), "the simulation writes pods that can be understood"
    return found.amounts


def _raw(item: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(item))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _pod(operation: Create) -> Pod:
    owner = operation.owner
    references = [OwnerReference("ReplicaSet", owner, owner, controller=True)] if owner else None
    meta = ObjectMeta(
        generate_name="" if operation.name else "g-",
        name=operation.name,
        namespace=operation.namespace,
        owner_references=references,
    )
    limits: dict[str, str | int] = {_GPU: str(operation.gpus), _MEMORY: str(operation.memory)}
    return Pod(meta, PodSpec([Container("main", resources=Resources(limits=limits))]))


def _changed(pod: Pod, memory: int) -> Pod:
    """Return a pod that asks for another memory or, with 0, has another label."""
    if not memory:
        labels = {"touched": pod.metadata.resource_version}
        return msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)
        )
    container = (pod.spec.containers or [])[0]
    limits = dict((container.resources or Resources()).limits or {})
    limits[_MEMORY] = str(memory)
    changed = msgspec.structs.replace(container, resources=Resources(limits=limits))
    spec = msgspec.structs.replace(pod.spec, containers=[changed])
    return msgspec.structs.replace(pod, spec=spec)


__all__ = ["EPOCH", "RULES", "Requests", "demand"]

"""Admitted writes: the API server calls admission for every write of a pod or a root.

Admission runs at every attempt of a write, as in a real API server. An allowed write may still end
in several ways: see `operations.Ending`.
"""

import asyncio
import random
from enum import Enum, auto
from typing import Any, Final

import msgspec

from ledger.kube.api.objects import Pod, Workload
from simulation.actors.admission import Admission
from simulation.model import kinds
from simulation.model.apiserver import Conflict, SimulatedApiServer
from simulation.model.operations import Ending
from simulation.model.settings import SETTLE_SECONDS
from webhook.admission.verdict import RESERVED
from webhook.api.admission_review import (
    AdmissionRequest,
    GroupKind,
    GroupResource,
    Scale,
    ScaleSpec,
    UserInfo,
)

ETCD_SECONDS_MAX: Final = 0.02
BEYOND_SECONDS: Final = 1.5 * SETTLE_SECONDS

REFUSED_BY_OTHERS: Final = (Ending.DENIED_BY_WEBHOOK, Ending.DENIED_BY_QUOTA)

_PODS: Final = GroupResource(resource="pods", version="v1")


class WriteOutcome(Enum):
    """The outcome of a request."""

    DONE = auto()
    REFUSED = auto()
    TAKEN = auto()
    FAILED = auto()


class Review(Enum):
    """The webhooks' verdict: `PASSED` without the ledger, `CHARGED` after asking it."""

    REFUSED = auto()
    PASSED = auto()
    CHARGED = auto()


class WriteMode(msgspec.Struct, frozen=True):
    """How a request goes: who sends it, and what becomes of it after a yes."""

    user: str
    ending: Ending = Ending.STORED
    late: float = 0.0
    dry_run: bool = False


class AdmittedWrites:
    """Writes to one API server."""

    def __init__(
        self, server: SimulatedApiServer, admission: Admission, source: random.Random
    ) -> None:
        self.server = server
        self.admission = admission
        self.source = source
        self._calls = 0

    def request(
        self, operation: str, item: Pod | Workload, old: Pod | Workload | None, manner: WriteMode
    ) -> AdmissionRequest:
        """Return the review of a write."""
        kind, resource = GroupKind(kind="Pod"), _PODS
        if isinstance(item, Workload):
            definition = kinds.resource_of(item)
            kind = GroupKind(definition.group, definition.kind)
            resource = GroupResource(definition.group, definition.plural, definition.version)
        return self._request(
            operation, kind, resource, item.metadata.namespace, item.metadata.name,
            manner, _raw(item), _raw(old),
        )  # fmt: skip

    def scale_request(self, old: Workload, count: int, manner: WriteMode) -> AdmissionRequest:
        """Return the review of a change of an object's scale."""
        resource = kinds.resource_of(old)
        before = Scale(old.metadata, ScaleSpec(kinds.count_of(old)))
        after = msgspec.structs.replace(before, spec=ScaleSpec(count))
        request = self._request(
            "UPDATE", GroupKind("autoscaling", "Scale"),
            GroupResource(resource.group, resource.plural, resource.version),
            old.metadata.namespace, old.metadata.name, manner, _raw(after), _raw(before),
        )  # fmt: skip
        return msgspec.structs.replace(request, sub_resource="scale")

    async def reviewed(
        self, request: AdmissionRequest, ending: Ending, *, ignoring: bool = False
    ) -> Review:
        """Ask all webhooks; they are asked at the same time, and one no is enough.

        With `ignoring`, no answer is a yes (`failurePolicy: Ignore`).
        """
        if ending is Ending.CLIENT_GONE:
            self.admission.ask_in_vain(request)
            return Review.REFUSED
        response = await self.admission.validate(request)
        if ending in (*REFUSED_BY_OTHERS, Ending.ANSWER_LOST):
            return Review.REFUSED
        if response is None:
            return Review.PASSED if ignoring else Review.REFUSED
        if not response.allowed:
            return Review.REFUSED
        charged = RESERVED in response.audit_annotations.values()
        return Review.CHARGED if charged else Review.PASSED

    def admitted(self, review: Review, namespace: str) -> bool:
        """Return whether what was allowed must be charged from its write on."""
        return review is Review.CHARGED or namespace not in self.server.lenient

    async def store(
        self, item: Pod | Workload, base: int, manner: WriteMode, *, reviewed: bool | None
    ) -> WriteOutcome:
        """Write the admitted object, as its ending has it."""
        server, ending = self.server, manner.ending
        attempt = item.metadata.uid, base
        counted = int(bool(reviewed) and ending is not Ending.BEYOND)
        late = manner.late
        server.pending[attempt] += counted

        def write() -> WriteOutcome:
            server.pending[attempt] -= counted
            try:
                server.write(item, base, reviewed=reviewed)
            except Conflict:
                return WriteOutcome.TAKEN
            return WriteOutcome.DONE

        await asyncio.sleep(self.source.random() * ETCD_SECONDS_MAX)

        if ending is Ending.LOST:
            server.pending[attempt] -= counted
            return WriteOutcome.FAILED
        if ending in (Ending.LATE, Ending.BEYOND):
            if ending is Ending.BEYOND:
                # No headroom can be reserved for it; it is charged when it is observed.
                late, reviewed = late + BEYOND_SECONDS, False
            asyncio.get_running_loop().call_later(late, write)
            return WriteOutcome.FAILED
        outcome = write()
        return WriteOutcome.FAILED if ending is Ending.UNKNOWN else outcome

    def _request(
        self,
        operation: str,
        kind: GroupKind,
        resource: GroupResource,
        namespace: str,
        name: str,
        manner: WriteMode,
        item: msgspec.Raw,
        old: msgspec.Raw,
    ) -> AdmissionRequest:
        self._calls += 1
        return AdmissionRequest(
            f"{self.server.name}-call-{self._calls}",
            operation,
            kind,
            resource,
            name=name,
            namespace=namespace,
            user_info=UserInfo(manner.user),
            object=item,
            old_object=old,
            dry_run=manner.dry_run,
        )


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


def _raw(item: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(item))

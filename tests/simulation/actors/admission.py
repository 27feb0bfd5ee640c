"""Admission: how the API server calls the webhooks of some replica, over a network that fails."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from ledger.kube.api.objects import Pod
from simulation.engine.processes import outside
from webhook.api.admission_review import AdmissionRequest, AdmissionResponse

TIMEOUT_SECONDS: Final = 10.0
"""The webhooks' `timeoutSeconds`."""

HOP_SECONDS_MAX: Final = 0.005


class WebhookReplica(Protocol):
    """A replica as the API server reaches it. `gone` is done when the process has been killed."""

    gone: "asyncio.Future[None]"

    def serves(self) -> bool:
        """Return whether the replica serves webhooks."""
        ...

    def review(
        self, request: AdmissionRequest, *, mutating: bool
    ) -> "asyncio.Task[AdmissionResponse]":
        """Start answering a review."""
        ...


class Admission:
    """Calls webhooks. The API server decides how to treat a missing answer."""

    def __init__(
        self,
        replicas: Sequence[WebhookReplica],
        source: random.Random,
        note: Callable[[str], None],
    ) -> None:
        self._replicas = replicas
        self._source = source
        self._note = note

    async def mutate(self, request: AdmissionRequest, pod: Pod) -> Pod:
        """Return the pod as the mutating webhook patches it, or as it is when none answers."""
        response = await self._call(request, mutating=True)
        if response is None or not response.patch:
            return pod
        return _patched(pod, msgspec.json.decode(response.patch))

    async def validate(self, request: AdmissionRequest) -> AdmissionResponse | None:
        """Return the validating webhook's answer, None when there is none."""
        response = await self._call(request, mutating=False)
        verdict = "no answer" if response is None else "allowed" if response.allowed else "denied"
        what = f"{request.resource.name}/{request.name} {request.sub_resource}".rstrip()
        self._note(f"{request.operation} {request.namespace}/{what}: {verdict}")
        return response

    def ask_in_vain(self, request: AdmissionRequest) -> None:
        """Call the validating webhook for a client that has gone away."""
        outside(self._call(request, mutating=False))

    async def _call(self, request: AdmissionRequest, *, mutating: bool) -> AdmissionResponse | None:
        serving = [candidate for candidate in self._replicas if candidate.serves()]
        if not serving:
            return None
        replica = self._source.choice(serving)
        await self._hop()
        answer = replica.review(request, mutating=mutating)
        await asyncio.wait(
            (answer, replica.gone),
            timeout=TIMEOUT_SECONDS,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not answer.done():
            return None
        await self._hop()
        return answer.result()

    async def _hop(self) -> None:
        await asyncio.sleep(self._source.random() * HOP_SECONDS_MAX)


def _patched(pod: Pod, patch: list[dict[str, Any]]) -> Pod:
    """Apply a JSON patch that only adds."""
    document = msgspec.json.decode(msgspec.json.encode(pod))
    for step in patch:
        *path, last = (_unescaped(segment) for segment in step["path"].split("/")[1:])
        target = document
        for name in path:
            target = target[int(name)] if isinstance(target, list) else target[name]
        target[last] = step["value"]
    return msgspec.convert(document, Pod)


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")

"""Review of commit 75bd653: its decoding, and an endpoint that reads the pod and allows it."""

import asyncio
from datetime import datetime
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from tests.bench.frozen import http_stack
from tests.bench.frozen.http_stack import GoneClient, RefusedBody

MUTATE_PATH: Final = "/admission/mutate"
VALIDATE_PATH: Final = "/admission/validate"
API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
BODY_MAX: Final = 3 * 2**20
DEADLINE_SECONDS: Final = 9.0
NAME_CHARACTERS_MAX: Final = 253

Quantities = dict[str, str | int]


class _Type(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    kind: str = ""
    resource: str = ""
    version: str = ""


class _User(msgspec.Struct, frozen=True, gc=False):
    username: str = ""
    groups: tuple[str, ...] = ()


class _Request(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str
    operation: str
    kind: _Type
    resource: _Type
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = _User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None


class _Incoming(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class _Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool


class _Outgoing(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    response: _Response


class _Owner(msgspec.Struct, frozen=True, rename="camel", gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class _Resources(msgspec.Struct, frozen=True, gc=False):
    limits: Quantities | None = None
    requests: Quantities | None = None


class _Privilege(msgspec.Struct, frozen=True, gc=False):
    privileged: bool | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    restart_policy: str | None = None
    resources: _Resources | None = None
    security_context: _Privilege | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    overhead: Quantities | None = None
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    active_deadline_seconds: int | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_reviews: Final = msgspec.json.Decoder(_Incoming)
_pods: Final = msgspec.json.Decoder(_Pod)
_encoder: Final = msgspec.json.Encoder()


class AllowingEndpoint:
    """One webhook as an ASGI application; `answered` counts its reviews."""

    answered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        until = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        try:
            http_stack.check(scope, BODY_MAX)
            body = await http_stack.read(receive, BODY_MAX, until)
            response = await self._answer(_decoded(body))
        except msgspec.MsgspecError as error:
            problem = {"error": "BadReview", "message": str(error)}
            await http_stack.answer(send, 400, msgspec.json.encode(problem))
        except RefusedBody as refused:
            await http_stack.answer(send, refused.status, refused.body, refused.headers)
        except GoneClient:
            return
        else:
            encoded = _encoder.encode(_Outgoing(API_VERSION, KIND, response))
            await http_stack.answer(send, 200, encoded)

    async def _answer(self, request: _Request) -> _Response:
        _pods.decode(request.object)
        self.answered += 1
        return _Response(request.uid, True)


def _decoded(body: bytes) -> _Request:
    """Read a review. Raises msgspec.MsgspecError."""
    review = _reviews.decode(body)
    request = review.request
    if (review.kind, review.api_version) != (KIND, API_VERSION) or not request.uid:
        raise msgspec.ValidationError("not a review")
    for name in (request.namespace, request.name):
        if len(name) > NAME_CHARACTERS_MAX or "/" in name:
            raise msgspec.ValidationError(f"{name[:64]!r} is not a Kubernetes name")
    return request

"""Access to `/v1`: loopback may read everything, others what Kubernetes says they may.

A bearer token is reviewed, then asked about as Kubernetes asks about its own objects: may this
user `list` (POST: `create`) the resource named by the path, `holders` in `/v1/holders`, in the
namespace named by the query; without one, in all namespaces. So a tenant's role in its own
namespace shows it its own holders and nobody else's. A token speaks for its own cluster only: the
query is narrowed to it, because the namespace of the same name in another cluster may be somebody
else's.

Answers are remembered for a short while, and only so many of them; tokens are remembered as
hashes.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime import addresses

PREFIX: Final = "/v1/"

GRANT_SECONDS: Final = 30.0
"""How long a yes is remembered: the time a revoked right still works."""

REFUSAL_SECONDS: Final = 5.0
"""How long a no is remembered."""

REMEMBERED_MAX: Final = 4096
"""Answers that are remembered; the oldest goes first."""

TOKEN_BYTES_MAX: Final = 16_384

_VERBS: Final = {"GET": "list", "HEAD": "list", "POST": "create"}

Caller = TypeVar("Caller")


class TokenReviewer(Protocol[Caller]):
    """Who is behind a token and what they may: Kubernetes, or a stand-in.

    Both calls have a deadline of their own, and raise ConnectionError where there is no answer.
    """

    async def review(self, token: str) -> Caller | None:
        """Return who presents the token, None when it is not valid."""
        ...

    async def may(self, caller: Caller, verb: str, resource: str, namespace: str) -> bool:
        """Return whether the caller may; namespace "" asks for all namespaces."""
        ...


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not answered, as HTTP says it."""

    status: int
    error: str


class Guard(Generic[Caller]):
    """Decides about tokens, remembering a bounded number of answers for a bounded time."""

    def __init__(
        self,
        reviewer: TokenReviewer[Caller] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask the reviewer; without one, no token opens anything."""
        self._reviewer = reviewer
        self._clock = clock
        self._remembered: dict[tuple[bytes, str, str, str], tuple[float, Refusal | None]] = {}

    async def refusal(self, token: str, verb: str, resource: str, namespace: str) -> Refusal | None:
        """Return why a request with this token is refused, None when it is granted."""
        if self._reviewer is None:
            return Refusal(403, "without a cluster only loopback may ask")
        if not token:
            return Refusal(401, "give a bearer token of this cluster, or ask from loopback")
        question = (hashlib.sha256(token.encode()).digest(), verb, resource, namespace)
        until, answer = self._remembered.get(question, (0.0, None))
        if self._clock() < until:
            return answer
        answer = await self._ask(self._reviewer, token, *question[1:])
        if answer is None or answer.status != 503:
            self._remember(question, answer)
        return answer

    async def _ask(
        self,
        reviewer: TokenReviewer[Caller],
        token: str,
        verb: str,
        resource: str,
        namespace: str,
    ) -> Refusal | None:
        try:
            caller = await reviewer.review(token)
            if caller is None:
                return Refusal(401, "the token is not valid in this cluster; get a new one")
            if await reviewer.may(caller, verb, resource, namespace):
                return None
        except ConnectionError as error:
            return Refusal(503, f"the token cannot be reviewed: {error}; try again")
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        return Refusal(
            403,
            f"you may not {verb} {resource}.gpuledger.io {where}; ask for a role that allows it",
        )

    def _remember(self, question: tuple[bytes, str, str, str], answer: Refusal | None) -> None:
        seconds = GRANT_SECONDS if answer is None else REFUSAL_SECONDS
        self._remembered.pop(question, None)
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[question] = (self._clock() + seconds, answer)


class AccessRequired(Generic[Caller]):
    """A pure ASGI middleware that lets nothing below `/v1/` pass unasked."""

    def __init__(self, app: ASGIApp, guard: Guard[Caller], cluster: str) -> None:
        """Guard an application; `cluster` is the one whose tokens are reviewed."""
        self._app = app
        self._guard = guard
        self._cluster = cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it without reading its body."""
        answer = await self._admitted(scope) if _is_guarded(scope) else scope
        if isinstance(answer, Refusal):
            await _response(answer)(scope, receive, send)
        else:
            await self._app(answer, receive, send)

    async def _admitted(self, scope: Scope) -> Scope | Refusal:
        headers = Headers(scope=scope)
        if is_local(scope, headers):
            return scope
        query = QueryParams(scope["query_string"])
        refusal = self._unclear(query) or await self._refused(
            scope["method"], scope["path"], query, headers
        )
        if refusal is not None:
            return refusal
        narrowed = {**query, "cluster": self._cluster}
        return {**scope, "query_string": urlencode(narrowed).encode()}

    def _unclear(self, query: QueryParams) -> Refusal | None:
        if len(query.multi_items()) > len(query):
            return Refusal(400, "a parameter is given more than once; give each once")
        if query.get("cluster") not in (None, self._cluster):
            return Refusal(403, f"this token is good for cluster {self._cluster} only")
        return None

    async def _refused(
        self, method: str, path: str, query: QueryParams, headers: Headers
    ) -> Refusal | None:
        verb = _VERBS.get(method)
        if verb is None:
            return Refusal(405, f"{method} is not for /v1; use GET or POST")
        resource = path[len(PREFIX) :].partition("/")[0]
        return await self._guard.refusal(
            _token(headers), verb, resource, query.get("namespace", "")
        )


def _is_guarded(scope: Scope) -> bool:
    return scope["type"] == "http" and str(scope["path"]).startswith(PREFIX)


def is_local(scope: Scope, headers: Headers) -> bool:
    """Return whether a process of this machine asks, and knows that it does.

    A web page in this machine's browser can reach loopback too, under a name of its own that it
    points there; the Host header gives it away.
    """
    peer = str((scope.get("client") or ("", 0))[0])
    host: str = headers.get("host", "")
    name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
    return addresses.is_loopback(peer) and addresses.is_loopback(name.strip("[]"))


def _token(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) <= TOKEN_BYTES_MAX else ""


def _response(refusal: Refusal) -> Response:
    headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else None
    return Response(
        msgspec.json.encode({"error": {"message": refusal.error}}),
        refusal.status,
        headers,
        media_type="application/json",
    )

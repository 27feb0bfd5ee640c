"""Access to `/v1`: local clients may read everything, others as far as Kubernetes allows.

The API server reviews a bearer token and its right to `list` (POST: `create`) the resource of the
path (`holders` for `/v1/holders`) in the namespace of the query, or in all namespaces without one.
So a role in one namespace gives access to the holders of that namespace only. A token is valid for
its own cluster only: the query is narrowed to it, because a namespace of the same name in another
cluster may belong to another tenant.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime.http.loopback_access import is_local, peer_of
from ledger.runtime.http.token_reviews import AccessRefusal, TokenGuard

PREFIX: Final = "/v1/"

TOKEN_BYTES_MAX: Final = 16_384

_HEADERS: Final = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}}

_VERBS: Final = {"GET": "list", "HEAD": "list", "POST": "create"}

_LATE: Final = "the user's rights were not reviewed before the deadline of the request; try again"

RIGHTS: Final = "gpuledger.rights"
"""In the scope of an admitted request: the `Rights` of its caller."""

Rights = Callable[[str, str, str], Awaitable[AccessRefusal | None]]
"""Returns why the caller may not, by verb, resource and namespace, None if it may; "" means all
namespaces."""

Caller = TypeVar("Caller")


class AccessRequired(Generic[Caller]):
    """A pure ASGI middleware that authorizes every request below `/v1/`."""

    def __init__(self, app: ASGIApp, guard: TokenGuard[Caller], *, cluster: str) -> None:
        """Guard an application; `cluster` is the one whose tokens are reviewed."""
        self._app = app
        self._guard = guard
        self._cluster = cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it without reading its body."""
        answer = await self._admitted(scope) if _is_guarded(scope) else scope
        if isinstance(answer, AccessRefusal):
            await refuse(answer, scope, receive, send)
        else:
            await self._app(answer, receive, send)

    async def _admitted(self, scope: Scope) -> Scope | AccessRefusal:
        headers = Headers(scope=scope)
        if is_local(scope, headers):
            return {**scope, RIGHTS: _everything}
        query = QueryParams(scope["query_string"])
        refusal = self._unclear(query) or await self._refused(scope, query, headers)
        if refusal is not None:
            return refusal
        narrowed = {**query, "cluster": self._cluster}
        rights = partial(self._guard.refusal, token_of(headers), peer=peer_of(scope))
        return {**scope, "query_string": urlencode(narrowed).encode(), RIGHTS: rights}

    def _unclear(self, query: QueryParams) -> AccessRefusal | None:
        if len(query.multi_items()) > len(query):
            return AccessRefusal(400, "a parameter is given more than once; give each once")
        if query.get("cluster") not in (None, self._cluster):
            return AccessRefusal(403, f"this token is good for cluster {self._cluster} only")
        return None

    async def _refused(
        self, scope: Scope, query: QueryParams, headers: Headers
    ) -> AccessRefusal | None:
        verb = _VERBS.get(scope["method"])
        if verb is None:
            return AccessRefusal(405, f"{scope['method']} is not for /v1; use GET or POST")
        resource = str(scope["path"])[len(PREFIX) :].partition("/")[0]
        namespace = query.get("namespace", "")
        return await self._guard.refusal(
            token_of(headers), verb, resource, namespace, peer_of(scope)
        )


async def _everything(verb: str, resource: str, namespace: str) -> AccessRefusal | None:
    """Grant everything, to a local client."""
    return None


def rights_of(scope: Scope) -> Rights:
    """Return the rights of the caller of a request; without a guard in front, none."""
    rights: Rights = scope.get(RIGHTS, _nothing)
    return rights


async def _nothing(verb: str, resource: str, namespace: str) -> AccessRefusal | None:
    return AccessRefusal(403, "the rights of the caller are not known")


class RightsUnclear(Exception):
    """The rights of the caller cannot be reviewed now; `status` is that of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def may_list_all(scope: Scope, resource: str, until: float | None = None) -> bool:
    """Return whether the caller may list a resource in all namespaces.

    `until` is a loop time, None for the reviewer's own deadline only. Raises RightsUnclear.
    """
    try:
        async with asyncio.timeout_at(until):
            refusal = await rights_of(scope)("list", resource, "")
    except TimeoutError:
        raise RightsUnclear(503, _LATE) from None
    if refusal is not None and refusal.status != 403:
        raise RightsUnclear(refusal.status, refusal.error)
    return refusal is None


async def may_name_holders(scope: Scope, until: float | None = None) -> bool:
    """Return whether the answer may name holders of all namespaces in shared quotas.

    `until` as in `may_list_all`. Raises RightsUnclear.
    """
    return await may_list_all(scope, "holders", until)


def _is_guarded(scope: Scope) -> bool:
    return scope["type"] == "http" and str(scope["path"]).startswith(PREFIX)


def token_of(headers: Headers) -> str:
    """Return the bearer token of a request, "" without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) <= TOKEN_BYTES_MAX else ""


async def refuse(refusal: AccessRefusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with its refusal."""
    headers = _HEADERS.get(refusal.status)
    body = msgspec.json.encode({"error": {"message": refusal.error}})
    await Response(body, refusal.status, headers, media_type="application/json")(
        scope, receive, send
    )

"""Access to the paths that show all tenants: `/metrics`, and the probes with `?verbose`.

Processes of this machine may, and so may a client certificate that may send reviews, the token of
a file, and a bearer token of the cluster whose user may `get` the path `/metrics`, which is the
right that Prometheus is given for the API server's own. Probes without `?verbose` stay open: a
kubelet has no token, and they show others only which checks fail.
"""

import hmac
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime.http.authorization import is_local, peer_of, refuse, token_of
from ledger.runtime.http.health import BRIEF, PROBES, VERBOSE
from ledger.runtime.http.request_guards import name_of
from ledger.runtime.http.token_reviews import AccessRefusal, TokenGuard

METRICS: Final = "/metrics"

_WATCHED: Final = frozenset((METRICS, *PROBES))

Caller = TypeVar("Caller")


class MonitoringAccess(Generic[Caller]):
    """A pure ASGI middleware that shows all tenants only to those who may see them."""

    def __init__(
        self,
        app: ASGIApp,
        guard: TokenGuard[Caller],
        *,
        subjects: Collection[str] | None = None,
        token: Callable[[], str] = str,
    ) -> None:
        """Guard an application.

        With `subjects` (RFC 4514; empty: all), clients with a certificate
        of these names may read. `token` returns the token that may, "" where there is none.
        """
        self._app, self._guard = app, guard
        self._subjects = None if subjects is None else frozenset(subjects)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it without reading its body."""
        if scope["type"] != "http" or scope["path"] not in _WATCHED:
            await self._app(scope, receive, send)
        elif scope["path"] != METRICS and VERBOSE not in QueryParams(scope["query_string"]):
            known = is_local(scope, Headers(scope=scope)) or self._is_certified(scope)
            await self._app(scope if known else {**scope, BRIEF: True}, receive, send)
        elif (refusal := await self._refusal(scope)) is not None:
            await refuse(refusal, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> AccessRefusal | None:
        headers = Headers(scope=scope)
        if is_local(scope, headers) or self._is_certified(scope):
            return None
        given, own = token_of(headers), self._token()
        if own and hmac.compare_digest(given.encode(), own.encode()):
            return None
        refusal = await self._guard.refusal(given, "get", METRICS, "", peer_of(scope))
        if refusal is None or refusal.status in (429, 503):
            return refusal
        path = str(scope["path"])
        return AccessRefusal(
            refusal.status,
            f"{path if path == METRICS else f'{path}?{VERBOSE}'} shows all tenants:"
            f" {refusal.error}; or give a client certificate that may send reviews, or the token"
            " in metrics_token_file",
        )

    def _is_certified(self, scope: Scope) -> bool:
        name = name_of(scope)
        if name is None or self._subjects is None:
            return False
        return not self._subjects or name in self._subjects

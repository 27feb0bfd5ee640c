"""Access to the paths with data of all tenants: `/metrics`, and the probes with `?verbose`.

Four kinds of clients have access: processes of this machine, clients with a certificate that may
send reviews, clients with the token of `metrics_token_file`, and users that may `get` the path
`/metrics`. Prometheus needs the same right for the API server. Probes without `?verbose` need no
access, because a kubelet has no token. They show only the names of failing checks.
"""

import hmac
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime.http.client_certificate_access import name_of
from ledger.runtime.http.health import BRIEF, PROBES, VERBOSE
from ledger.runtime.http.loopback_access import is_local, peer_of
from ledger.runtime.http.token_reviews import AccessRefusal, TokenGuard
from ledger.runtime.http.v1_access import refuse, token_of

METRICS: Final = "/metrics"

_WATCHED: Final = frozenset((METRICS, *PROBES))

Caller = TypeVar("Caller")


class MonitoringAccess(Generic[Caller]):
    """A pure ASGI middleware that authorizes requests for data of all tenants."""

    def __init__(
        self,
        app: ASGIApp,
        guard: TokenGuard[Caller],
        *,
        subjects: Collection[str] | None = None,
        token: Callable[[], str] = str,
    ) -> None:
        """Guard an application.

        With `subjects` (RFC 4514; empty: all), clients with a certificate of these subjects may
        read. `token` returns the accepted token, "" for none.
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

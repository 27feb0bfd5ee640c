"""Aggregated API: the routes of `/v1` below `/apis`, for users that the API server names.

The user in the headers is used only if the TLS handshake verified the certificate of the API
server's proxy. The right is then reviewed again, with the attributes by which the API server
authorized the request. So one rule grants both, and a client that reaches the port by another way
gets nothing. Here no client is trusted because it connects from loopback.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from gpuledger.server.aggregated import aggregated_discovery
from gpuledger.server.aggregated.aggregated_discovery import ROOT, VERBS
from gpuledger.server.aggregated.front_proxy_trust import FrontProxyTrust, UntrustedProxy
from gpuledger.server.aggregated.front_proxy_user import UnclearUser, user_of
from gpuledger.server.aggregated.status_errors import Refusal, call_with_status
from ledger.kube.client.access_review import QUERY_GROUP as GROUP
from ledger.kube.client.access_review import KubernetesReviewer, Subject
from ledger.runtime.http.token_reviews import NAME_CHARACTERS_MAX, TokenGuard
from ledger.runtime.http.v1_access import PREFIX, RIGHTS

PROBES: Final = ("/livez", "/readyz", "/healthz")

OF_A_USER: Final = frozenset({"explain", "fit"})
"""Resources whose answer depends on the user, by default the caller."""

UNSUPPORTED: Final = frozenset(
    {"watch", "fieldSelector", "labelSelector", "resourceVersion", "continue"}
)
"""Parameters that change what the API server authorizes, or that lists here do not have."""


class Target(NamedTuple):
    """A resource in a namespace, or with "" in all."""

    namespace: str
    resource: str


class QueryGroupReviewer:
    """Reviews rights in the group of the aggregated API; there are no tokens here."""

    def __init__(self, reviewer: KubernetesReviewer) -> None:
        """Ask by this reviewer."""
        self._reviewer = reviewer

    async def review(self, token: str) -> Subject | None:
        """Return None: no token is accepted."""
        return None

    async def may(self, caller: Subject, verb: str, resource: str, namespace: str) -> bool:
        """Return whether the caller has the right. Raises ConnectionError without an answer."""
        return await self._reviewer.may(caller, verb, resource, namespace, group=GROUP)


class AggregatedApi:
    """The ASGI application."""

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        *,
        guard: TokenGuard[Subject],
        trust: Callable[[], FrontProxyTrust],
        cluster: str,
    ) -> None:
        """Serve the routes below `/v1/`. `trust` returns the proxy, or raises UntrustedProxy."""
        served = [
            route for route in routes if isinstance(route, Route) and route.path.startswith(PREFIX)
        ]
        self._resources = aggregated_discovery.resources_of(served)
        documents = aggregated_discovery.documents(self._resources)
        self._documents = {
            path: msgspec.json.encode(document) for path, document in documents.items()
        }
        self._app = Starlette(routes=served)
        self._guard, self._trust, self._cluster = guard, trust, cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        try:
            if (public := self._public(scope)) is not None:
                await public(scope, receive, send)
                return
            admitted = await self._admitted(scope)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
        else:
            await call_with_status(self._app, admitted, receive, send)

    def _public(self, scope: Scope) -> Response | None:
        """Return the answer that needs no right, None for another path."""
        path = str(scope["path"])
        if path in PROBES:
            return Response("ok")
        document = self._documents.get(path.rstrip("/"))
        return None if document is None else Response(document, media_type="application/json")

    async def _admitted(self, scope: Scope) -> Scope:
        """Return the request as one of `/v1`. Raises Refusal."""
        caller = self._caller(scope)
        target = self._target(str(scope["path"]))
        if scope["method"] not in self._resources[target.resource]:
            allowed = ", ".join(sorted(self._resources[target.resource]))
            raise Refusal(405, f"{scope['method']} is not for {target.resource}; use {allowed}")
        query = self._query(QueryParams(scope["query_string"]), target)
        await self._authorize(caller, VERBS[scope["method"]], target)
        query["cluster"] = self._cluster
        if target.resource in OF_A_USER:
            query.setdefault("user", caller.username)
        path = PREFIX + target.resource
        return {
            **scope,
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query).encode(),
            RIGHTS: partial(self._guard.refusal_of, caller),
        }

    def _caller(self, scope: Scope) -> Subject:
        try:
            trust = self._trust()
        except UntrustedProxy as error:
            raise Refusal(503, f"users cannot be authenticated: {error}") from error
        tls = scope.get("extensions", {}).get("tls", {})
        if not trust.accepts(tls.get("client_cert_chain") or []):
            raise Refusal(
                401,
                f"{ROOT} is for the API server's proxy, whose certificate this connection lacks;"
                " send the request to the API server",
            )
        try:
            return user_of(scope["headers"], trust)
        except UnclearUser as error:
            raise Refusal(401, f"the proxy names no user: {error}") from error

    def _target(self, path: str) -> Target:
        parts = path.removeprefix(f"{ROOT}/").split("/") if path.startswith(f"{ROOT}/") else []
        match parts:
            case [resource] if resource in self._resources:
                return Target("", resource)
            case ["namespaces", namespace, resource] if namespace and resource in self._resources:
                return Target(namespace, resource)
        raise Refusal(404, f"there is no such resource; {ROOT} lists those that exist")

    def _query(self, query: QueryParams, target: Target) -> dict[str, str]:
        """Return the parameters for `/v1`. Raises Refusal."""
        if len(query.multi_items()) > len(query):
            raise Refusal(400, "a parameter is given more than once; give each once")
        for name in sorted(UNSUPPORTED & query.keys()):
            raise Refusal(400, "it is not supported; leave it out", parameter=name)
        if query.get("namespace", target.namespace) != target.namespace:
            raise Refusal(
                400, "it is not that of the path; give it in the path only", parameter="namespace"
            )
        if query.get("cluster", self._cluster) != self._cluster:
            raise Refusal(
                403, f"this API is about cluster {self._cluster} only", parameter="cluster"
            )
        given: dict[str, str] = dict(query)
        return given | ({"namespace": target.namespace} if target.namespace else {})

    async def _authorize(self, caller: Subject, verb: str, target: Target) -> None:
        refusal = await self._guard.refusal_of(caller, verb, target.resource, target.namespace)
        if refusal is None:
            return
        if refusal.status == 403:
            raise Refusal(403, _denied(caller, verb, target))
        raise Refusal(refusal.status, refusal.error)


def _denied(caller: Subject, verb: str, target: Target) -> str:
    """Return the refusal in the words of the API server."""
    namespace = target.namespace[:NAME_CHARACTERS_MAX]
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    return (
        f'User "{caller.username[:NAME_CHARACTERS_MAX]}" cannot {verb} resource'
        f' "{target.resource}" in API group "{GROUP}" {where}'
    )

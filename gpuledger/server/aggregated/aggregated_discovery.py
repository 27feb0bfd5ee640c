"""Aggregated discovery: the documents by which the API server and kubectl find the resources.

They are made from the routes of `/v1`, so each of these is a resource here. They name no tenant and
need no right: if they failed, the API server could not delete namespaces.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.routing import Route

from ledger.kube.client.access_review import QUERY_GROUP as GROUP
from ledger.kube.client.access_review import QUERY_VERSION as VERSION
from ledger.runtime.http.v1_access import PREFIX

ROOT: Final = f"/apis/{GROUP}/{VERSION}"

VERBS: Final = {"GET": "list", "HEAD": "list", "POST": "create"}
"""Verbs of rights, as the API server names them for these methods on a collection."""

OF_NO_NAMESPACE: Final = frozenset({"cards"})


def resources_of(routes: Sequence[Route]) -> dict[str, frozenset[str]]:
    """Return the methods of each resource, by the routes below `/v1/`."""
    served: dict[str, frozenset[str]] = {}
    for route in routes:
        name = route.path.removeprefix(PREFIX)
        served[name] = served.get(name, frozenset()) | frozenset(route.methods or ())
    return served


def documents(resources: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """Return the documents by their paths."""
    preferred = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    group = {"name": GROUP, "versions": [preferred], "preferredVersion": preferred}
    listed = [_resource(name, resources[name]) for name in sorted(resources)]
    return {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **group},
        # Without them the API server logs an error and asks again; the rows have no schema.
        "/openapi/v2": {
            "swagger": "2.0",
            "info": {"title": GROUP, "version": VERSION},
            "paths": {},
        },
        "/openapi/v3": {"paths": {}},
        ROOT: {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/{VERSION}",
            "resources": listed,
        },
    }


def _resource(name: str, methods: frozenset[str]) -> dict[str, Any]:
    return {
        "name": name,
        "singularName": name,
        "namespaced": name not in OF_NO_NAMESPACE,
        "kind": name.capitalize(),
        "verbs": sorted({VERBS[method] for method in methods if method in VERBS}),
    }

"""Absent definitions: why a resource is not served, and the proof that it has no objects.

A 404 alone proves nothing: the version may be retired while the objects exist under another
version. But a CustomResourceDefinition exists until the last of its objects is gone. So a
linearizable list of definitions without this definition proves that no such objects existed at the
version of the list.
"""

from typing import Final

import msgspec

from ledger.kube.api.api_resources import DEFINITIONS, Resource
from ledger.kube.api.cluster_errors import ClusterError, Malformed, NotServed
from ledger.kube.api.objects import ListMeta
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import discovery


class Absence(msgspec.Struct, frozen=True):
    """The reason why a resource is not served; at `version`, if not None, it had no objects."""

    reason: str
    version: int | None = None


class _Definitions(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_lists: Final = msgspec.json.Decoder(_Definitions)


async def is_served(client: ApiClient, resource: Resource) -> bool:
    """Return whether the resource's path is served. Raises ClusterError for other failures."""
    try:
        await client.get(resource.collection(), {"limit": "1"})
    except NotServed:
        return False
    return True


async def explain(client: ApiClient, resource: Resource, before: Absence) -> Absence:
    """Return the cause of a resource's absence. Never raises ClusterError.

    `before` is the previous result. If it was a proof, it holds until the resource is defined, and
    is returned unchanged.
    """
    what = f"{resource.name} {resource.version} is not served by {client.address}"
    try:
        defined, version = await _defined(client, resource)
        if before.version is not None and not defined:
            return before
        discovered = await discovery.discover(client)
    except ClusterError as error:
        return Absence(f"{what}; whether objects of it exist is not known: {error}")
    if versions := discovered.versions(resource.name):
        return Absence(f"{what}, which serves it as {', '.join(versions)}")
    if resource.group in discovered.unclear:
        return Absence(f"{what}: the server of group {resource.group} does not answer")
    if defined:
        return Absence(f"{what}: its CustomResourceDefinition is not established")
    return Absence(f"{what}: it has no CustomResourceDefinition {resource.name}", version)


async def _defined(client: ApiClient, resource: Resource) -> tuple[bool, int]:
    """Return whether the resource has a definition, and the version of that answer."""
    selector = {"fieldSelector": f"metadata.name={resource.name}"}
    body = await client.get(DEFINITIONS.collection(), selector)
    try:
        listed = _lists.decode(body)
        return bool(listed.items), int(listed.metadata.resource_version)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Malformed(f"{DEFINITIONS.collection()}: no list of definitions: {error}") from error

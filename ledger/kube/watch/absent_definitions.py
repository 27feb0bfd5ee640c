"""Absent definitions: why a resource is not served, and whether no objects of it can exist.

A path that answers 404 proves nothing by itself: the version may have been retired while the
objects live on under another one. But a CustomResourceDefinition stays until the last of its
objects is gone. So a linearizable list of definitions without this one says that at the version
of that list there were no such objects.
"""

from typing import Final

import msgspec

from ledger.kube.api.api_resources import DEFINITIONS, Resource
from ledger.kube.api.errors import ClusterError, Malformed, NotServed
from ledger.kube.api.objects import ListMeta
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import discovery


class Absence(msgspec.Struct, frozen=True):
    """Why a resource is not served; `version` is one at which no object of it existed, or None."""

    reason: str
    version: int | None = None


class _Definitions(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_lists: Final = msgspec.json.Decoder(_Definitions)


async def is_served(client: ApiClient, resource: Resource) -> bool:
    """Return whether the resource's path is known. Raises ClusterError for other failures."""
    try:
        await client.get(resource.collection(), {"limit": "1"})
    except NotServed:
        return False
    return True


async def explain(client: ApiClient, resource: Resource, before: Absence) -> Absence:
    """Find out what it means that the resource is not served. Never raises ClusterError.

    `before` is what was found last. If it was a proof, it holds for as long as nobody defines the
    resource, and is returned as it is.
    """
    what = f"{resource.name} {resource.version} is not served by {client.address}"
    try:
        defined, version = await _defined(client, resource)
        if before.version is not None and not defined:
            return before
        found = await discovery.discover(client)
    except ClusterError as error:
        return Absence(f"{what}; whether objects of it exist is not known: {error}")
    if versions := found.versions(resource.name):
        return Absence(f"{what}, which serves it as {', '.join(versions)}")
    if resource.group in found.unclear:
        return Absence(f"{what}: the server of group {resource.group} does not answer")
    if defined:
        return Absence(f"{what}: its CustomResourceDefinition is not established")
    return Absence(f"{what}: it has no CustomResourceDefinition {resource.name}", version)


async def _defined(client: ApiClient, resource: Resource) -> tuple[bool, int]:
    """Return whether the resource has a definition, and the version at which that was true."""
    selector = {"fieldSelector": f"metadata.name={resource.name}"}
    body = await client.get(DEFINITIONS.collection(), selector)
    try:
        listed = _lists.decode(body)
        return bool(listed.items), int(listed.metadata.resource_version)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Malformed(f"{DEFINITIONS.collection()}: no list of definitions: {error}") from error

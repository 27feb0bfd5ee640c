"""Discovery: the resources that an API server serves.

One request is enough if the server has aggregated discovery (Kubernetes 1.30 and newer). Otherwise
there is one request per group and version. A group whose own server is down does not hide the
other groups; it is listed as unclear.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec
import structlog

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable, Malformed
from ledger.kube.client.api_client import JSON, ApiClient

DISCOVERY_SECONDS: Final = 30.0
"""Deadline of one discovery, for all its requests together."""

GROUP_VERSIONS_MAX: Final = 512
"""Maximum number of groups and versions that are requested one by one; a large cluster has 150."""

REQUESTS_MAX: Final = 8
"""Maximum number of simultaneous requests for groups and versions."""

_AGGREGATED: Final = "APIGroupDiscoveryList"
_ACCEPT: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as={_AGGREGATED},{JSON}"
_NEEDED: Final = frozenset(("list", "watch"))

_log: Final = structlog.get_logger("ledger.kube")


class Discovery(msgspec.Struct, frozen=True):
    """The resources that can be listed and watched, each in every version.

    The versions of one resource follow the server's preference. The resources of the groups in
    `unclear` may be incomplete.
    """

    every: tuple[Resource, ...]
    unclear: frozenset[str] = frozenset()

    def preferred(self) -> tuple[Resource, ...]:
        """Return each resource once, in the version that the server prefers."""
        first: dict[str, Resource] = {}
        for resource in self.every:
            first.setdefault(resource.name, resource)
        return tuple(first.values())

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the served versions of a resource by its name, such as `jobs.batch`."""
        return tuple(resource.version for resource in self.every if resource.name == name)


class _Kind(msgspec.Struct):
    kind: str = ""


class _Meta(msgspec.Struct):
    name: str = ""


class _Entry(msgspec.Struct, rename="camel"):
    resource: str
    scope: str = ""
    response_kind: _Kind | None = None
    verbs: list[str] | None = None


class _Version(msgspec.Struct):
    version: str
    resources: list[_Entry] | None = None
    freshness: str = ""


class _Group(msgspec.Struct):
    metadata: _Meta
    versions: list[_Version] | None = None


class _GroupVersion(msgspec.Struct, rename="camel"):
    group_version: str
    version: str


class _ListedGroup(msgspec.Struct, rename="camel"):
    name: str
    versions: list[_GroupVersion] | None = None
    preferred_version: _GroupVersion | None = None


class _Root(msgspec.Struct):
    """The answer of /apis in either form: aggregated with `items`, or plain with `groups`."""

    kind: str = ""
    items: list[_Group] | None = None
    groups: list[_ListedGroup] | None = None


class _PlainEntry(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False
    verbs: list[str] | None = None


class _PlainList(msgspec.Struct):
    resources: list[_PlainEntry] | None = None


T = TypeVar("T")


async def discover(client: ApiClient) -> Discovery:
    """Return the served resources. Raises ClusterError."""
    try:
        async with asyncio.timeout(DISCOVERY_SECONDS):
            root = await _read(client, "/apis", _Root)
            if root.kind != _AGGREGATED:
                return await _one_by_one(client, root.groups or ())
            core = await _read(client, "/api", _Root)
    except TimeoutError as error:
        raise ClusterUnavailable(
            f"{client.address}: discovery took longer than {DISCOVERY_SECONDS:g} s"
        ) from error
    return _from_aggregated([*(core.items or ()), *(root.items or ())])


def _from_aggregated(groups: Iterable[_Group]) -> Discovery:
    every: list[Resource] = []
    unclear = set()
    for group in groups:
        for version in group.versions or ():
            every += _entries(group.metadata.name, version)
            if version.freshness == "Stale":
                unclear.add(group.metadata.name)
    return Discovery(tuple(every), frozenset(unclear))


def _entries(group: str, version: _Version) -> Iterator[Resource]:
    for entry in version.resources or ():
        if entry.response_kind and set(entry.verbs or ()) >= _NEEDED:
            namespaced = entry.scope == "Namespaced"
            kind = entry.response_kind.kind
            yield Resource(group, version.version, entry.resource, kind, namespaced)


async def _one_by_one(client: ApiClient, groups: Iterable[_ListedGroup]) -> Discovery:
    """Request every version of every group; the core group has only version v1."""
    asked = [
        ("", "v1"),
        *((group.name, version) for group in groups for version in _preference(group)),
    ]
    if len(asked) > GROUP_VERSIONS_MAX:
        raise Malformed(
            f"{client.address} serves {len(asked)} groups and versions; "
            f"at most {GROUP_VERSIONS_MAX} are looked at"
        )
    slots = asyncio.Semaphore(REQUESTS_MAX)
    async with asyncio.TaskGroup() as tasks:
        answers = [
            tasks.create_task(_plain(client, slots, *group_version)) for group_version in asked
        ]
    results = [answer.result() for answer in answers]
    unclear = frozenset(
        group for (group, _), answer in zip(asked, results, strict=True) if answer is None
    )
    return Discovery(tuple(resource for answer in results for resource in answer or ()), unclear)


def _preference(group: _ListedGroup) -> list[str]:
    """Return the versions of a group, the preferred one first."""
    versions = [listed.version for listed in group.versions or ()]
    preferred = group.preferred_version.version if group.preferred_version else ""
    return sorted(versions, key=lambda version: version != preferred)


async def _plain(
    client: ApiClient, slots: asyncio.Semaphore, group: str, version: str
) -> list[Resource] | None:
    """Return the resources of one version of a group, None if it does not answer."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        async with slots:
            answer = await _read(client, path, _PlainList)
    except ClusterError as error:
        _log.warning("cluster_group_unclear", path=path, reason=str(error))
        return None
    return [
        Resource(group, version, resource.name, resource.kind, resource.namespaced)
        for resource in answer.resources or ()
        if "/" not in resource.name and set(resource.verbs or ()) >= _NEEDED
    ]


async def _read(client: ApiClient, path: str, kind: type[T]) -> T:
    body = await client.request("GET", path, accept=_ACCEPT, seconds=DISCOVERY_SECONDS)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"{client.address}{path}: no discovery document: {error}") from error

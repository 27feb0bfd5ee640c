"""List-watch: a list, then every change after it, until the consumer stops.

After a cut connection the stream resumes from the last version that it yielded. If the server no
longer has that version, or sends an invalid event, the stream lists again; it reports invalid
events. It raises no error of the API server.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from ledger.kube.api.cluster_errors import (
    ClusterError,
    ClusterUnavailable,
    Gone,
    Malformed,
    NotServed,
)
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import ListMeta, ObjectMeta
from ledger.kube.api.protobuf_envelope import PROTOBUF
from ledger.kube.client.api_client import JSON, ApiClient
from ledger.kube.watch.watch_encodings import ACCEPT_PROTOBUF, WatchEncoding, json_events
from ledger.tasks.backoff import Backoff

PAGE_OBJECTS: Final = 200
"""Objects per page of a list: about 2 ms of decoding, so that the loop stays responsive."""

KEEP_STRIDE: Final = 16
"""Objects of a page that are handled between two yields to the loop: 0.2 ms per large workload."""

WATCH_SECONDS: Final = 300
"""Seconds after which the server ends a watch, which spreads clients over servers again."""

EXPIRED_PAGES_MAX: Final = 3
"""Maximum number of restarts of a list whose pages expired."""

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0

_log: Final = structlog.get_logger("ledger.kube")


class Watchable(Protocol):
    """An object that has metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Watchable)
K = TypeVar("K")
W = TypeVar("W")
T_co = TypeVar("T_co", bound=Watchable, covariant=True)


class ListPage(Protocol[T_co]):
    """One decoded page of a list."""

    @property
    def metadata(self) -> ListMeta: ...

    @property
    def items(self) -> Sequence[T_co] | None: ...


class CollectionSource(Generic[T, K]):
    """A collection of the API server: its path, its decoders, and the function `keep`.

    `keep` is applied to each object when it is decoded, so that no more than a page of a long list
    is in memory in full.
    """

    def __init__(
        self,
        path: str,
        object_type: type[T],
        *,
        page_type: type[ListPage[T]],
        keep: Callable[[T], K],
        protobuf: WatchEncoding[T] | None = None,
    ) -> None:
        """With `protobuf` a watch accepts that encoding too; lists are JSON in any case."""
        self.path = path
        self.objects = msgspec.json.Decoder(object_type)
        self.pages = msgspec.json.Decoder(page_type)
        self.keep = keep
        self.accept = JSON if protobuf is None else ACCEPT_PROTOBUF
        self._json = json_events(object_type)
        self._protobuf = protobuf

    def encoding(self, content_type: str) -> WatchEncoding[T]:
        """Return the encoding of an answered watch; one without a known content type is JSON."""
        if self._protobuf is not None and content_type == PROTOBUF:
            return self._protobuf
        return self._json


def whole(item: W) -> W:
    """Return the object unchanged."""
    return item


def watch_backoff(
    sleep: Callable[[float], Awaitable[None]], jitter: Callable[[], float] = random.random
) -> Backoff:
    """Return the backoff between two attempts to list or watch a collection."""
    return Backoff(BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, jitter=jitter, sleep=sleep)


async def list_all(
    client: ApiClient, source: CollectionSource[T, K], path: str | None = None, *, fields: str = ""
) -> Listed[K]:
    """List a collection at one version, linearizably, page by page.

    Without a resourceVersion parameter the API server answers as of now, and later pages continue
    at the version of the first. `fields` is a field selector. Raises ClusterError.
    """
    for _ in range(EXPIRED_PAGES_MAX):
        try:
            return await _pages(client, source, path or source.path, fields)
        except Gone as error:
            _log.info("cluster_list_expired", reason=str(error))
    raise ClusterUnavailable(
        f"{path or source.path}: the pages of the list expire before they are read"
    )


async def watch(
    client: ApiClient, source: CollectionSource[T, K], backoff: Backoff
) -> AsyncGenerator[Change[K], None]:
    """Yield a list and every later change, without end. Close the generator to stop."""
    version, failed = None, False
    while True:
        try:
            if version is None:
                listed = await list_all(client, source)
                version = listed.version
                if failed:
                    backoff.reset()
                failed = False
                yield listed
            resumed = version
            async with aclosing(_changes(client, source, version)) as changes:
                async for change in changes:
                    version = change.version
                    if failed:
                        backoff.reset()
                    failed = False
                    yield change
            if version == resumed:
                # Pause, because the server may end every watch at once.
                await backoff.wait_shortest()
        except ClusterError as error:
            failed = True
            if not isinstance(error, ClusterUnavailable):
                version = None
            absent = isinstance(error, NotServed)
            log = _log.info if absent else _log.warning
            log("cluster_watch_interrupted", path=source.path, reason=str(error))
            yield Interrupted(str(error), absent)
            await backoff.wait()


async def _pages(
    client: ApiClient, source: CollectionSource[T, K], path: str, fields: str
) -> Listed[K]:
    params = {"limit": str(PAGE_OBJECTS)}
    if fields:
        params["fieldSelector"] = fields
    objects: list[K] = []
    while True:
        page = _decode(source.pages.decode, await client.get(path, params), path)
        await _keep(source, page.items or (), objects)
        if not page.metadata.continue_:
            return Listed(_number(page.metadata.resource_version, path), objects)
        params["continue"] = page.metadata.continue_


async def _keep(source: CollectionSource[T, K], items: Sequence[T], objects: list[K]) -> None:
    """Add the kept form of a page's items; yield to the loop if `keep` does work."""
    for start in range(0, len(items), KEEP_STRIDE):
        objects += map(source.keep, items[start : start + KEEP_STRIDE])
        if source.keep is not whole:
            await asyncio.sleep(0)


async def _changes(
    client: ApiClient, source: CollectionSource[T, K], version: int
) -> AsyncGenerator[Changed[K] | Reached, None]:
    """Yield the changes of one watch request."""
    params = {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": str(version),
        "timeoutSeconds": str(WATCH_SECONDS),
    }
    async with aclosing(await client.watch(source.path, params, source.accept)) as answer:
        encoding = source.encoding(answer.content_type)
        splitter = encoding.splitter()
        async for chunk in answer.chunks():
            for event in splitter.feed(chunk):
                yield _change(source, encoding, event)


def _change(
    source: CollectionSource[T, K], encoding: WatchEncoding[T], data: bytes
) -> Changed[K] | Reached:
    """Decode one event. Raises Gone, ClusterUnavailable, Malformed."""
    kind, encoded = _decode(encoding.event, data, source.path)
    if kind == "BOOKMARK":
        mark = _decode(encoding.mark, encoded, source.path)
        return Reached(_number(mark.metadata.resource_version, source.path))
    if kind == "ERROR":
        status = _decode(encoding.error, encoded, source.path)
        error = Gone if status.code == 410 else ClusterUnavailable
        raise error(f"watch of {source.path}: {status.code} {status.message}")
    if kind not in ("ADDED", "MODIFIED", "DELETED"):
        raise Malformed(f"watch of {source.path}: an event of unknown type {kind[:32]!r}")
    item = _decode(encoding.object, encoded, source.path)
    version = _number(item.metadata.resource_version, source.path)
    return Changed(version, source.keep(item), deleted=kind == "DELETED")


D = TypeVar("D")


def _decode(decode: Callable[[Any], D], data: Any, path: str) -> D:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"{path}: not what the Kubernetes API promises: {error}") from error


def _number(text: str, path: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Malformed(f"{path}: {text[:32]!r} is not a resourceVersion")
    return int(text)

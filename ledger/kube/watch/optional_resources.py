"""Optional resources: watches of resources that may be defined later, removed or defined again.

While the resource exists, this is a normal watch. While it is absent, each reason is reported once,
and the interval between checks grows up to a bound.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

import structlog

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change, Interrupted, Listed
from ledger.kube.api.objects import Workload, WorkloadList
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import absent_definitions, list_watch
from ledger.kube.watch.list_watch import CollectionSource, watch_backoff
from ledger.tasks.backoff import Backoff

K = TypeVar("K")
Sleep = Callable[[float], Awaitable[None]]

_log: Final = structlog.get_logger("ledger.kube")


def source_of(resource: Resource, keep: Callable[[Workload], K]) -> CollectionSource[Workload, K]:
    """Return the source of the resource's objects, which applies `keep` to each."""
    return CollectionSource(resource.collection(), Workload, page_type=WorkloadList, keep=keep)


async def watch(
    client: ApiClient, resource: Resource, keep: Callable[[Workload], K], sleep: Sleep
) -> AsyncGenerator[Change[K], None]:
    """Yield a list and every later change, without end, as `Workloads.watch_objects` requires."""
    source = source_of(resource, keep)
    while True:
        async with aclosing(list_watch.watch(client, source, watch_backoff(sleep))) as changes:
            async for change in changes:
                if isinstance(change, Interrupted) and change.absent:
                    reason = change.reason
                    break
                yield change
        was_absent = False
        async with aclosing(_until_served(client, resource, watch_backoff(sleep))) as news:
            async for change in news:
                was_absent = True
                yield change
        if not was_absent:
            # API servers disagree, or a server lists resources that it does not watch.
            yield Interrupted(reason)
            await watch_backoff(sleep).wait_shortest()


async def _until_served(
    client: ApiClient, resource: Resource, backoff: Backoff
) -> AsyncGenerator[Listed[Any] | Interrupted, None]:
    """Yield the reasons of the absence, with any proof; end when the resource may be served."""
    reported = absent_definitions.Absence("")
    while not await _may_be_served(client, resource):
        why = await absent_definitions.explain(client, resource, reported)
        if why.reason != reported.reason:
            _log.info("cluster_resource_absent", reason=why.reason)
            yield Interrupted(why.reason, absent=True)
        if why.version is not None and why is not reported:
            yield Listed(why.version, [])
        reported = why
        await backoff.wait()


async def _may_be_served(client: ApiClient, resource: Resource) -> bool:
    """Return whether to watch again; True after a failure, which the watch then reports."""
    try:
        return await absent_definitions.is_served(client, resource)
    except ClusterError:
        return True

"""Removal plan: everything that an installation has left, read from the API server."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from gpuledger.check.registered_webhooks import RegisteredInstallation
from gpuledger.removal import pod_leftovers
from gpuledger.removal.api_service_leftover import find_api_service
from gpuledger.removal.node_leftovers import find_nodes
from gpuledger.removal.pod_leftovers import find_pods
from gpuledger.removal.quota_leftovers import find_quotas, find_statuses
from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing
from gpuledger.removal.stopped_parts import (
    FoundParts,
    PartPod,
    find_check_pods,
    find_parts,
    find_running,
)
from gpuledger.removal.webhook_leftovers import FoundWebhooks, find_webhooks
from ledger.kube.api.api_resources import POLICIES, UNIVERSE_QUOTAS
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable, Forbidden
from ledger.kube.client.api_client import ApiClient

Found = TypeVar("Found")


class RemovalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The things to remove in order, and those that are only reported.

    While there are other installations, the marks of pods, nodes and quotas stay, because those
    use them. `elsewhere` are webhooks of the same name that call a Service in another namespace:
    then nothing is removed. `unread` are lists that could not be read. `running` are the pods of
    the parts. `may_return` is whether a service that was not found may register the webhooks again.
    """

    webhooks: list[RemovalTask] = []
    parts: list[RemovalTask] = []
    marks: list[RemovalTask] = []
    reported: list[RemovedThing] = []
    elsewhere: list[RemovedThing] = []
    unread: list[RemovedThing] = []
    running: list[PartPod] = []
    may_return: bool = False

    def tasks(self) -> list[RemovalTask]:
        """Return all tasks in their order."""
        return [*self.webhooks, *self.parts, *self.marks]

    def things(self) -> list[RemovedThing]:
        """Return all that is to be removed."""
        return [task.thing for task in self.tasks()]


class _Lists:
    """Reads lists; those that are refused are `unread`, and after one without answer no other."""

    def __init__(self, scope: RemovalScope) -> None:
        self._account = f"{scope.name}-uninstall"
        self._is_away = False
        self.unread: list[RemovedThing] = []

    async def read(
        self, name: str, find: Callable[[], Awaitable[Found]], otherwise: Found
    ) -> Found:
        if self._is_away:
            return otherwise
        try:
            return await find()
        except ClusterError as error:
            self._is_away = isinstance(error, ClusterUnavailable)
            self.unread.append(RemovedThing("list", name, "read", self._problem(error)))
        return otherwise

    def _problem(self, error: ClusterError) -> str:
        if not isinstance(error, Forbidden):
            return str(error)
        return f"{error}; the chart's ClusterRole {self._account} has all rights that are needed"


async def plan_removal(client: ApiClient, scope: RemovalScope) -> RemovalPlan:
    """Return everything that is there to remove, and the lists that could not be read."""
    lists = _Lists(scope)
    webhooks = await lists.read(
        "webhookconfigurations", partial(find_webhooks, client, scope), FoundWebhooks()
    )
    if lists.unread or webhooks.elsewhere:
        # Without the webhooks it is not known whether another installation uses the marks.
        return RemovalPlan(elsewhere=webhooks.elsewhere, unread=lists.unread)
    parts = await lists.read(
        "deployments and daemonsets", partial(find_parts, client, scope), FoundParts()
    )
    nothing: list[RemovalTask] = []
    api = await lists.read("apiservices", partial(find_api_service, client, scope), nothing)
    checks = await lists.read("pods", partial(find_check_pods, client, scope), nothing)
    none_runs: list[PartPod] = []
    running = await lists.read("pods", partial(find_running, client, scope), none_runs)
    if webhooks.others:
        listed, kept = nothing, [await _kept(client, lists, webhooks.others)]
    else:
        listed, kept = await _marked(client, scope, lists), []
    unchanged = [task.thing for task in listed if task.undo is None]
    return RemovalPlan(
        webhooks=webhooks.tasks,
        parts=[*api, *parts.tasks, *checks],
        marks=[task for task in listed if task.undo is not None],
        reported=[*unchanged, *parts.elsewhere, *kept],
        unread=lists.unread,
        running=running,
        may_return=webhooks.repaired and not parts.has_service,
    )


async def _marked(client: ApiClient, scope: RemovalScope, lists: _Lists) -> list[RemovalTask]:
    """Return the marked pods, quotas, nodes and statuses, in this order."""
    nothing: list[RemovalTask] = []
    finds: tuple[tuple[str, Callable[[], Awaitable[list[RemovalTask]]]], ...] = (
        ("pods", partial(find_pods, client)),
        ("resourcequotas", partial(find_quotas, client, scope.rules, scope.zero)),
        ("nodes", partial(find_nodes, client)),
        *(
            (resource.plural, partial(find_statuses, client, resource))
            for resource in (UNIVERSE_QUOTAS, POLICIES)
        ),
    )
    return [task for name, find in finds for task in await lists.read(name, find, nothing)]


async def _kept(
    client: ApiClient, lists: _Lists, others: list[RegisteredInstallation]
) -> RemovedThing:
    """Return the marks that other installations use, with the way to remove these."""
    gated = await lists.read("pods", partial(pod_leftovers.count_gated, client), 0)
    return RemovedThing(
        "pods, nodes, quotas",
        ", ".join(other.name for other in others),
        "keep the marks",
        f"another installation uses them, and its service opens the gates of {gated} waiting pods;"
        f" to remove it: {'; '.join(other.removal for other in others)}",
    )

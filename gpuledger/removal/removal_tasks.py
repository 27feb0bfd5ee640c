"""Removal tasks: one object that an installation has written to, and the write that undoes it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable, NotFound
from ledger.kube.client import quota_and_gate_writes
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.quota_and_gate_writes import MERGE

AT_ONCE: Final = 16
"""Maximum number of simultaneous writes."""

UNANSWERED_MAX: Final = AT_ONCE
"""Writes without an answer, one after the other, after which a round tries no more of them. So an
API server that answers no write costs a round one deadline, and not one for each object."""

NOT_TRIED: Final = f"not tried, because {UNANSWERED_MAX} writes before it got no answer"

Undo = Callable[[], Awaitable[None]]


class RemovedThing(msgspec.Struct, frozen=True, order=True):
    """Something to remove, or to report: its kind, name, and the action in words.

    `problem` is the reason why it is still there, empty before an attempt.
    """

    kind: str
    name: str
    action: str
    problem: str = ""


class RemovalTask(msgspec.Struct, frozen=True):
    """A thing and the write that removes it; without the write it is only reported."""

    thing: RemovedThing
    undo: Undo | None


class RemovalWrites:
    """The writes of one round, at most AT_ONCE at a time."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(AT_ONCE)
        self._unanswered = 0

    async def run(self, tasks: Sequence[RemovalTask]) -> dict[RemovedThing, str]:
        """Undo all, and return the problems of those that failed, by thing."""
        problems = await asyncio.gather(*(self._problem_of(task) for task in tasks))
        return {task.thing: text for task, text in zip(tasks, problems, strict=True) if text}

    async def _problem_of(self, task: RemovalTask) -> str:
        """Undo one; return the reason why that failed, "" if it did not."""
        if task.undo is None:
            return ""
        async with self._room:
            if self._unanswered >= UNANSWERED_MAX:
                return NOT_TRIED
            problem = ""
            try:
                await task.undo()
            except NotFound:
                pass  # removed meanwhile
            except ClusterUnavailable as error:
                self._unanswered += 1
                return str(error)
            except ClusterError as error:
                problem = str(error)
            self._unanswered = 0
            return problem


def merging(client: ApiClient, path: str, patch: dict[str, Any]) -> Undo:
    """Return the write of a merge patch, which removes the fields that are null."""

    async def undo() -> None:
        await quota_and_gate_writes.send(client, "PATCH", path, patch, MERGE)

    return undo


def deleting(client: ApiClient, path: str, uid: str) -> Undo:
    """Return the deletion of the object with this uid."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}

    async def undo() -> None:
        await quota_and_gate_writes.send(client, "DELETE", path, options)

    return undo

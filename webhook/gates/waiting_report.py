"""Waiting report: the pods behind the scheduling gate with their places and obstacles.

An obstacle names quotas with their numbers, and pods of the same namespace only.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from webhook.gates.gate_queue import GateQueue, GateQueues, WaitingPod

PAGE_BYTES_MAX: Final = 512 * 1024
"""Bytes of JSON after which a page ends, so that it fits into a message between replicas."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Place = tuple[str, int, str]
"""The local namespace, the creation in µs of Unix time, and the key: the order of rows."""


class WaitingRow(msgspec.Struct, frozen=True):
    """A pod that waits behind the scheduling gate.

    `amounts` is its demand, in the units of its resources; that for the resource `unknown` depends
    on cards that the cluster does not have. `since` is the creation of the pod, RFC 3339. `place`
    counts from 1 in the queue of its namespace. It is 0 for a pod that is set aside, because it
    could not fit on empty quotas. `obstacle` is the reason of the wait, empty before the first try.
    """

    cluster: str
    namespace: str
    pod: str
    key: str
    uid: str
    amounts: Amounts
    unknown: str
    since: str
    place: int
    obstacle: str


class WaitingQuestion(msgspec.Struct, frozen=True):
    """A question about waiting pods of a namespace, given by its local name; "" for all.

    The answer has at most `limit` rows, which follow the place `after`; "" for the first ones.
    """

    namespace: str
    limit: int
    after: str = ""


class WaitingPage(msgspec.Struct, frozen=True):
    """Waiting pods by namespace and creation; `next` is the place of the next page or ""."""

    rows: list[WaitingRow]
    next: str = ""


def waiting_page(queues: GateQueues, cluster: str, question: WaitingQuestion) -> WaitingPage:
    """Return a page of the pods that wait. An unreadable `after` begins at the first row."""
    rows: list[WaitingRow] = []
    size, last = 0, ""
    for place, row in _rows(queues, cluster, question):
        if len(rows) >= question.limit or size > PAGE_BYTES_MAX:
            return WaitingPage(rows, last)
        rows.append(row)
        size += len(msgspec.json.encode(row))
        last = "/".join(map(str, place))
    return WaitingPage(rows)


def _rows(
    queues: GateQueues, cluster: str, question: WaitingQuestion
) -> Iterator[tuple[_Place, WaitingRow]]:
    """Yield the rows that follow the place of a question."""
    after, prefix = _place(question.after), f"{cluster}/"
    for name in sorted(queues.by_namespace):
        namespace = name.removeprefix(prefix)
        if namespace < after[0] or question.namespace not in ("", namespace):
            continue
        queue, place = queues.by_namespace[name], 0
        for pod in sorted(queue.pods.values(), key=_order):
            is_aside = pod.seen.uid in queue.hopeless
            place += not is_aside
            at = (namespace, *_order(pod))
            if at > after:
                yield at, _row(cluster, namespace, queue, pod, 0 if is_aside else place)


def _row(cluster: str, namespace: str, queue: GateQueue, pod: WaitingPod, place: int) -> WaitingRow:
    obstacle = queue.obstacle(pod.seen.uid)
    return WaitingRow(
        cluster,
        namespace,
        pod.name,
        pod.seen.key,
        pod.seen.uid,
        pod.seen.demand,
        pod.unknown,
        pod.created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        place,
        obstacle.text if obstacle is not None else "",
    )


def _order(pod: WaitingPod) -> tuple[int, str]:
    return int((pod.created - _EPOCH).total_seconds() * 1_000_000), pod.seen.key


def _place(text: str) -> _Place:
    namespace, _, rest = text.partition("/")
    created, _, key = rest.partition("/")
    readable = created.isascii() and created.isdigit() and len(created) <= 16
    return (namespace, int(created), key) if readable else ("", 0, "")

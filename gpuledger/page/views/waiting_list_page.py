"""Waiting list: the pods behind scheduling gates of a namespace or of all, the oldest first."""

from typing import Final

import msgspec

from gpuledger.page.contents.amount_lists import amounts_text
from gpuledger.page.contents.waiting_pods import waiting_pods
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest, existing_page
from gpuledger.page.page_source import WAITING_MAX
from gpuledger.page.quantity_texts import second_text
from webhook.gates.waiting_report import WaitingRow

ROWS_MAX: Final = 100
"""Waiting pods of a page."""


class ListedWaitingPod(msgspec.Struct, frozen=True):
    """A waiting pod with the place in the queue of its namespace, 0 for none, and its demand.

    `href` is the address of the namespace, whose page has estimates.
    """

    cluster: str
    namespace: str
    pod: str
    place: int
    since: str
    asked: str
    obstacle: str
    href: str


class WaitingList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the waiting pods; `first` counts from 1, and other pages are 0 where there is none.

    `note` is the reason why none are known. `is_complete` is false where more than `total` wait.
    """

    namespace: str
    pods: list[ListedWaitingPod]
    note: str
    first: int
    total: int
    is_complete: bool
    previous: int
    next: int


async def waiting_list(request: PageRequest) -> WaitingList:
    """Return the waiting pods of the parameters. Raises PageError, InvalidParameter."""
    await request.require("waiting", request.namespace)
    wanted = request.number("page", 1, WAITING_MAX)
    known, note = await waiting_pods(request, request.namespace, request.cluster)
    rows = sorted(known or [], key=lambda row: (row.since, row.namespace, row.pod))
    number = existing_page(wanted, len(rows), ROWS_MAX)
    first = (number - 1) * ROWS_MAX
    return WaitingList(
        namespace=request.namespace,
        pods=[_pod(request, row) for row in rows[first : first + ROWS_MAX]],
        note=note,
        first=first + 1,
        total=len(rows),
        is_complete=len(rows) < WAITING_MAX,
        previous=number - 1,
        next=number + 1 if len(rows) > first + ROWS_MAX else 0,
    )


def _pod(request: PageRequest, row: WaitingRow) -> ListedWaitingPod:
    asked = amounts_text(row.amounts)
    return ListedWaitingPod(
        row.cluster,
        row.namespace,
        row.pod,
        row.place,
        second_text(row.since),
        asked,
        row.obstacle,
        request.href("/page/namespace", namespace=row.namespace, cluster=row.cluster),
    )


WAITING: Final = PageDefinition(
    path="/waiting",
    title="Waiting pods",
    template="lists/waiting.html",
    view=waiting_list,
    navigation="Waiting",
)

"""Namespace: limits and use, what fits now, holders, waiting pods and denials of one namespace."""

from typing import Final

import msgspec

from gpuledger.page.contents.amount_lists import amounts_text
from gpuledger.page.contents.chosen_namespace import chosen_namespace
from gpuledger.page.contents.denial_rows import DenialRow, denial_rows
from gpuledger.page.contents.fitting_requests import FittingRequest, fitting_requests
from gpuledger.page.contents.wait_estimate import wait_estimate
from gpuledger.page.contents.waiting_pods import waiting_pods
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from gpuledger.page.quantity_texts import second_text
from gpuledger.page.quota_bars import QuotaBar, quota_bar
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.card_usage import offers_at
from projections.queries.denial_history import denials
from projections.queries.moments import LAST
from projections.queries.query_scope import NumberedNamespace, QueryScope
from projections.queries.quota_usage import Usage, usage
from projections.queries.selecting_quotas import selections
from projections.queries.tenants.card_room import card_room
from projections.queries.tenants.past_lifetimes import past_lifetimes
from projections.queries.tenants.root_holders import (
    HolderKind,
    RootHolder,
    pods_of_root,
    root_holders,
)
from projections.queries.tenants.shared_quota_shares import shared_quota_shares
from projections.text.device_text import LISTED_MAX, device_in_words

QUOTAS_MAX: Final = 50
"""Quotas of the page."""
HOLDERS_MAX: Final = 50
"""Holders of a page."""
WAITING_MAX: Final = 50
"""Waiting pods of the page, in the order of the queue."""
DENIALS_MAX: Final = 10
"""Different denials of a page."""
EQUAL_DENIALS_MAX: Final = 100
"""Denials that are read for a page."""

_DENIALS_MAX: Final = 10**15


class CoveringLine(msgspec.Struct, frozen=True):
    """A line of a quota that covers the namespace, with the address of its history.

    For a shared quota, `own` is the part of this namespace and `others` the sum of all others, both
    None if the part was not added up.
    """

    line: Usage
    bar: QuotaBar
    history: str
    shared: bool
    own: int | None = None
    others: int | None = None


class HolderRow(msgspec.Struct, frozen=True):
    """A holder with its amounts as texts, and its `pods`; a pod is one.

    `pods_href` is the address of the pods of a root, "" without. `devices` are the texts of the
    first devices that resource claims gave it, `more_devices` the number of the others.
    """

    holder: RootHolder
    committed: str
    reserved: str
    pods: int
    pods_href: str
    devices: list[str]
    more_devices: int


class WaitingPodRow(msgspec.Struct, frozen=True):
    """A waiting pod with the estimate of its wait as text."""

    pod: str
    place: int
    since: str
    obstacle: str
    estimate: str


class NamespaceAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a namespace.

    The lists are None where the viewer lacks the right; `waiting` is None also when it is not
    recorded, with the reason in `waiting_note`. Addresses of next pages are "" at the end.
    `uncounted` names the quotas that count only some pods, which `fits` leaves out. With
    `slices_known` it leaves out cards in ResourceSlices.
    """

    cluster: str
    name: str
    quotas: list[CoveringLine]
    quotas_left_out: bool
    fits: list[FittingRequest]
    slices_known: bool
    uncounted: list[str]
    root: str
    all_holders: str
    holders: list[HolderRow] | None
    next_holders: str
    waiting: list[WaitingPodRow] | None
    waiting_note: str
    waiting_more: int
    denials: list[DenialRow] | None
    next_denials: str


async def namespace(request: PageRequest) -> NamespaceAnswers:
    """Return the page of the namespace in the parameters. Raises PageError, InvalidParameter."""
    place = await chosen_namespace(request, "usage")
    scope = QueryScope(place.name, place.cluster)
    lines, more = await usage(request.view, request.position, scope, limit=QUOTAS_MAX)
    counting, uncounted = await _counting(request, lines)
    offers = offers_at(request.view, request.position, request.source.offers)
    rooms = await card_room(request.view, request.position, place.cluster, offers)
    root = request.text("root")
    holders, next_holders = await _holders(request, place, root)
    waiting, note, waiting_more = await _waiting(request, place)
    denied, next_denials = await _denials(request, scope)
    return NamespaceAnswers(
        cluster=place.cluster,
        name=place.name,
        quotas=await _covering(request, place, lines),
        quotas_left_out=bool(more),
        fits=fitting_requests(rooms, counting),
        slices_known=offers is not None,
        uncounted=uncounted,
        root=root,
        all_holders=request.here(root="", holders=""),
        holders=holders,
        next_holders=next_holders,
        waiting=waiting,
        waiting_note=note,
        waiting_more=waiting_more,
        denials=denied,
        next_denials=next_denials,
    )


async def _covering(
    request: PageRequest, place: NumberedNamespace, lines: list[Usage]
) -> list[CoveringLine]:
    parts = await shared_quota_shares(request.view, request.position, place, lines)
    rows = []
    for line in lines:
        own = None if line.namespace else parts.get((line.quota, line.resource))
        history = request.href(
            "/page/history",
            account=line.account,
            namespace=place.name,
            cluster=place.cluster,
        )
        rows.append(
            CoveringLine(
                line,
                quota_bar(line),
                history,
                not line.namespace,
                own,
                None if own is None else line.used - own,
            )
        )
    return rows


async def _counting(request: PageRequest, lines: list[Usage]) -> tuple[list[Usage], list[str]]:
    """Return the lines that count every pod, and the names of the quotas that do not."""
    selected = await selections(request.view, request.position)
    partial = {name for name, selection in selected.items() if selection.selects}
    counting = [line for line in lines if line.account not in partial]
    uncounted = sorted({line.quota for line in lines if line.account in partial})
    return counting, uncounted


async def _holders(
    request: PageRequest, place: NumberedNamespace, root: str
) -> tuple[list[HolderRow] | None, str]:
    if not await request.may("holders", place.name):
        return None, ""
    after = request.text("holders")
    if root:
        rows, more = await pods_of_root(
            request.view, request.position, place, root, limit=HOLDERS_MAX, after=after
        )
    else:
        try:
            rows, more = await root_holders(
                request.view, request.position, place, limit=HOLDERS_MAX, after=after
            )
        except ValueError as error:
            raise InvalidParameter(
                "holders", after, message="it is not a place of a page"
            ) from error
    return [_holder(request, row) for row in rows], request.here(holders=more) if more else ""


def _holder(request: PageRequest, holder: RootHolder) -> HolderRow:
    is_pod = holder.kind is HolderKind.POD
    root = "" if is_pod or not holder.pods else holder.key
    return HolderRow(
        holder,
        amounts_text(holder.committed),
        amounts_text(holder.reserved),
        1 if is_pod else holder.pods,
        request.here(root=root, holders="") if root else "",
        list(map(device_in_words, holder.devices[:LISTED_MAX])),
        max(0, len(holder.devices) - LISTED_MAX),
    )


async def _waiting(
    request: PageRequest, place: NumberedNamespace
) -> tuple[list[WaitingPodRow] | None, str, int]:
    """Return the first waiting pods, the basis of their estimates, and how many more wait."""
    if not await request.may("waiting", place.name):
        return None, "You may not list waiting.gpuledger.io in this namespace.", 0
    rows, note = await waiting_pods(request, place.name, place.cluster)
    if rows is None:
        return None, note, 0
    own = sorted(
        (row for row in rows if row.namespace == place.name),
        key=lambda row: (not row.place, row.place),
    )
    if not own:
        return [], "", 0
    past = await past_lifetimes(request.view, request.position, place)
    estimate = wait_estimate(past, request.time)
    pods = [
        WaitingPodRow(
            row.pod, row.place, second_text(row.since), row.obstacle, estimate.at(row.place)
        )
        for row in own[:WAITING_MAX]
    ]
    return pods, estimate.basis, max(0, len(own) - WAITING_MAX)


async def _denials(request: PageRequest, scope: QueryScope) -> tuple[list[DenialRow] | None, str]:
    if not await request.may("denials", scope.namespace):
        return None, ""
    before = query_parameters.number(request.query, "denials", 0, _DENIALS_MAX)
    rows, more = await denials(
        request.view,
        scope,
        limit=EQUAL_DENIALS_MAX,
        until=request.time if request.is_past else LAST,
        before=before,
    )
    shown, count = denial_rows(rows, DENIALS_MAX)
    if count < len(rows):
        more = rows[count - 1].number
    return shown, request.here(denials=more) if more else ""


NAMESPACE: Final = PageDefinition(
    path="/namespace",
    title="Namespace",
    template="namespace.html",
    view=namespace,
)

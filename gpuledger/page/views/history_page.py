"""History: the usage of a quota over time with its events, and the difference of two moments."""

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from gpuledger.page.contents.amount_lists import amounts_text
from gpuledger.page.contents.chosen_quota import ChosenQuota, chosen_quota
from gpuledger.page.contents.event_rows import EventRow, event_row
from gpuledger.page.contents.history_period import HistoryPeriod, history_period
from gpuledger.page.contents.step_chart import (
    LIMIT_CHANGE,
    EventMark,
    StepChart,
    step_chart,
)
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from gpuledger.page.quantity_texts import second_text
from ledger.core.model.display_names import display
from projections.api import query_parameters
from projections.queries.event_history import HistoryEvent
from projections.queries.moments import LAST, microseconds
from projections.queries.quota_usage import usage
from projections.queries.timeline.account_events import account_events
from projections.queries.timeline.holder_changes import HolderChange, holder_changes
from projections.queries.timeline.usage_steps import (
    LineStretch,
    UsagePoint,
    UsageSteps,
    usage_steps,
)

POINTS_MAX: Final = 240
"""Points of a chart."""
LINES_MAX: Final = 6
"""Lines of a quota with a chart; a quota of cards has three."""
EVENTS_MAX: Final = 40
"""Events of a page."""
CHANGES_MAX: Final = 50
"""Holders that came, went or changed, each."""
QUOTAS_MAX: Final = 100
"""Quotas of the list to choose from."""


class QuotaLink(msgspec.Struct, frozen=True):
    """A quota to choose, with the address of its history."""

    cluster: str
    namespace: str
    quota: str
    href: str


class LineHistory(msgspec.Struct, frozen=True):
    """A line over time: its chart, and its amounts before and after the period.

    `before` and `after` are None where the line was not open at that moment.
    """

    resource: str
    chart: StepChart
    before: UsagePoint | None
    after: UsagePoint | None


class MomentRow(msgspec.Struct, frozen=True):
    """The lines at a position, in the order of the charts; None where a line was not open."""

    position: int
    time: int
    points: list[UsagePoint | None]


class ChangeRow(msgspec.Struct, frozen=True):
    """A holder that came, went or changed, with its charges as texts."""

    key: str
    root: str
    before: str
    after: str


class HolderDifference(msgspec.Struct, frozen=True):
    """The holders that differ between the two moments, by key.

    `more` are those that are not listed; without `complete` there are even more.
    """

    came: list[ChangeRow]
    went: list[ChangeRow]
    changed: list[ChangeRow]
    more: int
    complete: bool


class QuotaHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a quota, or the list of quotas to choose from.

    `exact`: the charts have every change. `events` and `difference` are None without the right, and
    `difference` also for a shared quota without a namespace.
    """

    choices: list[QuotaLink] = []
    next_choices: str = ""
    account: str = ""
    quota: str = ""
    shared: bool = False
    namespace: str = ""
    cluster: str = ""
    start: str = ""
    stop: str = ""
    period: HistoryPeriod | None = None
    exact: bool = True
    lines: list[LineHistory] = []
    lines_more: int = 0
    moments: list[MomentRow] = []
    events: list[EventRow] | None = None
    next_events: str = ""
    difference: HolderDifference | None = None


async def history(request: PageRequest) -> QuotaHistory:
    """Return the history of the quota of the parameter `account`. Raises PageError,
    InvalidParameter.
    """
    name = request.text("account")
    if not name:
        return await _choices(request)
    chosen = await chosen_quota(request, name)
    period = await history_period(request)
    steps = await usage_steps(
        request.view, chosen.account, period.first, period.last, points=POINTS_MAX
    )
    events, next_events = await _events(request, chosen, period)
    keys = sorted(steps.lines)[:LINES_MAX]
    lines = [_line(key, steps, period, events or []) for key in keys]
    return QuotaHistory(
        account=name,
        quota=display(name),
        shared=chosen.shared,
        namespace="" if chosen.namespace is None else chosen.namespace.name,
        cluster="" if chosen.namespace is None else chosen.namespace.cluster,
        start=request.query.get("from", ""),
        stop=request.query.get("to", ""),
        period=period,
        exact=steps.exact,
        lines=lines,
        lines_more=max(0, len(steps.lines) - LINES_MAX),
        moments=_moments([steps.lines[key] for key in keys]),
        events=None if events is None else [event_row(event) for event in events],
        next_events=next_events,
        difference=await _difference(request, chosen, period),
    )


async def _choices(request: PageRequest) -> QuotaHistory:
    """Return the quotas that cover the namespace of the parameters, or all quotas."""
    await request.require("usage", request.namespace)
    lines, more = await usage(
        request.view,
        request.position,
        request.scope,
        limit=QUOTAS_MAX,
        after=request.text("after"),
    )
    links = {line.account: line for line in lines}
    return QuotaHistory(
        choices=[
            QuotaLink(
                line.cluster,
                line.namespace,
                line.quota,
                request.href(
                    "/page/history",
                    account=account,
                    namespace=line.namespace or request.namespace,
                    cluster=line.cluster or request.cluster,
                ),
            )
            for account, line in links.items()
        ],
        next_choices=request.here(after=more) if more else "",
    )


async def _events(
    request: PageRequest, chosen: ChosenQuota, period: HistoryPeriod
) -> tuple[list[HistoryEvent] | None, str]:
    if not await request.may("events", chosen.only.name if chosen.only else ""):
        return None, ""
    rows, more = await account_events(
        request.view,
        chosen.account,
        period.first + 1,
        period.last,
        limit=EVENTS_MAX,
        before=query_parameters.place(request.query, "before"),
        namespace=chosen.only,
    )
    return rows, request.here(before=f"{more[0]}.{more[1]}") if more else ""


def _marks(events: list[HistoryEvent], stretches: list[LineStretch], key: str) -> list[EventMark]:
    """Return the marks of the changes of the limit, and of the listed events on a line."""
    marks = [mark for stretch in stretches for mark in _limit_marks(stretch)]
    for event in events:
        for posting in event.postings:
            if posting.resource == key and posting.delta:
                title = f"{second_text(event.time)} {event.type} {event.key}: {posting.delta:+,}"
                marks.append((_microseconds(event.time), "event", title))
    return marks


def _limit_marks(stretch: LineStretch) -> Iterator[EventMark]:
    """Return the marks of the limit's begin, changes and end."""
    first, last = stretch.points[0], stretch.points[-1]
    if not stretch.was_open:
        yield first.time, LIMIT_CHANGE, f"limit set to {first.limit:,}"
    for before, after in pairwise(stretch.points):
        if before.limit != after.limit:
            yield after.time, LIMIT_CHANGE, f"limit {before.limit:,} to {after.limit:,}"
    if stretch.closed != LAST:
        yield stretch.closed, LIMIT_CHANGE, f"limit {last.limit:,} removed"


def _microseconds(time: str) -> int:
    return microseconds(datetime.fromisoformat(time))


def _line(
    key: str, steps: UsageSteps, period: HistoryPeriod, events: list[HistoryEvent]
) -> LineHistory:
    points, stretches = steps.lines[key], steps.stretches(key)
    marks = _marks(events, stretches, key)
    chart = step_chart(stretches, period.begin, period.end, marks)
    before = points[0] if points[0].position == period.first else None
    after = points[-1] if points[-1].position == period.last else None
    return LineHistory(key, chart, before, after)


def _moments(lines: list[list[UsagePoint]]) -> list[MomentRow]:
    """Return the points of all lines by position."""
    rows: dict[int, MomentRow] = {}
    for place, points in enumerate(lines):
        for point in points:
            row = rows.get(point.position)
            if row is None:
                row = rows[point.position] = MomentRow(
                    point.position, point.time, [None] * len(lines)
                )
            row.points[place] = point
    return [rows[position] for position in sorted(rows)]


async def _difference(
    request: PageRequest, chosen: ChosenQuota, period: HistoryPeriod
) -> HolderDifference | None:
    place = chosen.namespace
    if place is None or not await request.may("holders", place.name):
        return None
    changes = await holder_changes(request.view, place, period.first, period.last)
    kinds = (changes.came, changes.went, changes.changed)
    came, went, changed = ([_change(row) for row in kind[:CHANGES_MAX]] for kind in kinds)
    more = sum(max(0, len(kind) - CHANGES_MAX) for kind in kinds)
    return HolderDifference(came, went, changed, more, changes.complete)


def _change(change: HolderChange) -> ChangeRow:
    return ChangeRow(
        change.key, change.root, amounts_text(change.before), amounts_text(change.after)
    )


HISTORY: Final = PageDefinition(
    path="/history",
    title="History",
    template="history.html",
    view=history,
    navigation="History",
)

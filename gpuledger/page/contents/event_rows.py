"""Event rows: events of the log as texts, in bounded length."""

from typing import Final

import msgspec

from gpuledger.page.contents.amount_lists import amounts_text
from gpuledger.page.quantity_texts import amount_text, second_text
from ledger.core.model.accounts import AccountKind, kind
from ledger.core.model.display_names import display
from projections.queries.event_history import HistoryEvent
from projections.text.event_text import Posting

POSTINGS_MAX: Final = 8
"""Postings of an event that are listed; the rest is counted."""

NOTE_MAX: Final = 600
"""Characters of a note."""


class PostingRow(msgspec.Struct, frozen=True):
    """A change of the used amount of a line: names and amounts as texts."""

    account: str
    resource: str
    delta: str
    used: str


class EventRow(msgspec.Struct, frozen=True):
    """An event. `anchor` is the identifier of its row on the page."""

    anchor: str
    position: int
    number: int
    time: str
    type: str
    cause: str
    namespace: str
    key: str
    uid: str
    root: str
    amounts: str
    actor: str
    note: str
    postings: list[PostingRow]
    postings_more: int


def event_row(event: HistoryEvent) -> EventRow:
    """Return the row of an event."""
    where = f"{event.cluster}/{event.namespace}" if event.namespace else event.cluster
    note = event.note if len(event.note) <= NOTE_MAX else f"{event.note[:NOTE_MAX]}…"
    return EventRow(
        f"event-{event.position}-{event.number}",
        event.position,
        event.number,
        second_text(event.time),
        event.type,
        event.cause,
        where,
        event.key,
        event.uid,
        event.root,
        amounts_text(event.amounts),
        event.actor,
        note,
        [_posting(posting) for posting in event.postings[:POSTINGS_MAX]],
        max(0, len(event.postings) - POSTINGS_MAX),
    )


def _posting(posting: Posting) -> PostingRow:
    resource = posting.resource
    if kind(posting.account) is AccountKind.CARD:
        delta, used = f"{posting.delta:+,}", f"{posting.used_after:,}"
    else:
        sign = "+" if posting.delta > 0 else ""
        delta = f"{sign}{amount_text(posting.delta, resource)}"
        used = amount_text(posting.used_after, resource)
    return PostingRow(display(posting.account), resource, delta, used)

"""Denial rows: refused requests with their numbers, without the names of other namespaces."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from gpuledger.page.contents.amount_lists import amounts_text
from gpuledger.page.quantity_texts import amount_text, second_text
from ledger.core.model.denials import Denial, Shortage
from ledger.core.model.display_names import display
from projections.queries.denial_history import PastDenial
from projections.queries.tenants.foreign_holders import summed


class ShortLine(msgspec.Struct, frozen=True):
    """A line without room: names and amounts as texts.

    `increase` is what the request adds to the used amount, which for a change is less than its
    whole need. `short` has to be released before the request fits.
    """

    quota: str
    resource: str
    increase: str
    used: str
    limit: str
    free: str
    short: str


class DenialRow(msgspec.Struct, frozen=True):
    """Equal refused requests, `times` of them; object, time and decision are those of the newest.

    `first` is the time of the oldest. `objects` counts different objects. `holders` are the largest
    own holders of the first short line of the newest as texts. Without `can_fit` no release makes
    room.
    """

    cluster: str
    namespace: str
    time: str
    position: int
    key: str
    actor: str
    asked: str
    reason: str
    message: str
    remedy: str
    decision: str
    can_fit: bool
    lines: list[ShortLine]
    holders: list[str]
    times: int = 1
    first: str = ""
    objects: int = 1


def denial_rows(denials: Sequence[PastDenial], limit: int) -> tuple[list[DenialRow], int]:
    """Return at most `limit` rows of denials, newest first, and the number of denials in them.

    Denials are equal if namespace, kind of object, user, demand, reason and numbers are: a
    controller asks for the same again and again, for each pod by a new name.
    """
    groups: dict[_Cause, list[PastDenial]] = {}
    for counted, past in enumerate(denials):
        if (cause := _cause(past)) not in groups and len(groups) == limit:
            return [_row(group) for group in groups.values()], counted
        groups.setdefault(cause, []).append(past)
    return [_row(group) for group in groups.values()], len(denials)


_Cause = tuple[str, str, str, str, tuple[Shortage, ...]]


def _cause(past: PastDenial) -> _Cause:
    lines = tuple(structs.replace(line, message="") for line in past.denial.shortages)
    # The message of a denial without numbers is its cause; other messages name the object.
    text = past.denial.message if not lines else ""
    kind = past.key.partition("/")[0]
    where = f"{past.cluster}/{past.namespace}"
    return (
        f"{where} {kind}",
        past.actor,
        f"{past.denial.reason} {text}",
        amounts_text(past.amounts),
        lines,
    )


def _row(group: list[PastDenial]) -> DenialRow:
    return structs.replace(
        _denial_row(group[0]),
        times=len(group),
        first=second_text(group[-1].time),
        objects=len({past.key for past in group}),
    )


def _denial_row(past: PastDenial) -> DenialRow:
    denial = past.denial
    return DenialRow(
        past.cluster,
        past.namespace,
        second_text(past.time),
        past.position,
        past.key,
        past.actor,
        amounts_text(past.amounts),
        str(denial.reason),
        denial.message,
        denial.remedy,
        denial.decision,
        denial.transient,
        [_line(line) for line in denial.shortages],
        _holders(denial),
    )


def _line(line: Shortage) -> ShortLine:
    def text(value: int) -> str:
        return amount_text(value, line.resource)

    return ShortLine(
        display(line.account),
        line.resource,
        text(line.requested),
        text(line.used),
        text(line.limit),
        text(line.free),
        text(line.short),
    )


def _holders(denial: Denial) -> list[str]:
    """Return the own holders, and the sum of the others that the denial names."""
    if not denial.shortages:
        return []
    resource = denial.shortages[0].resource
    return [
        f"{holder.key}: {amount_text(holder.amount, resource)}" for holder in summed(denial).holders
    ]

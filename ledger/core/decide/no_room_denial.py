"""No-room denial: the denial of a request for which a line has no room.

It lists the lines without room in order of precedence, with the holders of the first line, the
reason, and the remedy. `ExceedsLimit` is the reason when a limit can never allow the demand.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from ledger.core.decide import denial_wording, room_check
from ledger.core.decide.denial_advice import Lacking, admissible
from ledger.core.decide.denial_holders import largest_holders
from ledger.core.decide.denial_wording import DenialWording
from ledger.core.decide.room_check import Short
from ledger.core.model import accounts, commands, display_names
from ledger.core.model.accounts import AccountKind
from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Reason, Shortage
from ledger.core.model.state import Namespace, State

SENTENCES_MAX: Final = 16
"""Most short lines that have a sentence in a denial."""

_PRECEDENCE: Final = {reason: rank for rank, reason in enumerate(Reason)}
_EXCEEDED: Final = {
    AccountKind.UNIVERSE: Reason.UNIVERSE_EXCEEDED,
    AccountKind.QUOTA: Reason.QUOTA_EXCEEDED,
    AccountKind.CARD: Reason.CARD_EXCEEDED,
}


def no_room(
    state: State,
    space: Namespace,
    short: list[Short],
    command: commands.Reserve,
    lacking: Lacking,
) -> Denial:
    """Return the denial: never before later, universe before quota, then by line number.

    `lacking` is the function with which `admissible` tries demands.
    """
    over = {shortfall.line: room_check.over_by(state, shortfall) for shortfall in short}
    possible = admissible(state, space, command, lacking, over)
    possible = possible._replace(never=possible.never - _within(state, short, command.demand))
    asking = DenialWording.of(command, space)
    if possible.never and not possible.now.pods and not possible.ever.pods:
        asking = asking._replace(never=possible.never)
    lines = ranked_shortages(state, short, asking, possible.never)
    head = lines[0]
    return msgspec.structs.replace(
        denial_of(state, space, lines, own_holders=command.own_holders),
        message=message_of(lines) + _envelope(space, command),
        transient=not possible.never,
        remedy=denial_wording.remedy(command, lines, possible, asking),
        reason=Reason.EXCEEDS_LIMIT if possible.never else Reason(head.reason),
    )


def _within(state: State, short: list[Short], demand: Amounts) -> set[int]:
    """Return the lines whose limits are enough for the demand itself.

    Until a change is stored, the object is charged its old demand as well, also on a line that did
    not count the object before. When the object is reduced first, the change fits.
    """
    return {
        line
        for line, _, _, total, _ in short
        if min(total, demand.get(accounts.resource_of(state.names[line][1]), 0))
        <= state.limit[line]
    }


def denial_of(
    state: State, space: Namespace, lines: tuple[Shortage, ...], *, own_holders: bool
) -> Denial:
    """Return a denial with its numbers and the holders of its first line.

    With `own_holders` it names no other namespace.
    """
    holders, more = largest_holders(state, space, lines[0], own_only=own_holders)
    return Denial(
        Reason(lines[0].reason),
        message_of(lines),
        transient=True,
        shortages=lines,
        holders=holders,
        holders_more=more,
    )


def ranked_shortages(
    state: State, short: list[Short], asking: DenialWording, never: Collection[int]
) -> tuple[Shortage, ...]:
    """Return the lines without room in the order of the denial, each with its sentence.

    Only the first `SENTENCES_MAX` have a sentence, and of several equal sentences only the first
    line: `limits` and `requests` of a resource limit the same.
    """
    reasons = {shortfall.line: _reason(state, shortfall, never) for shortfall in short}
    ranked = sorted(
        short, key=lambda shortfall: (_PRECEDENCE[reasons[shortfall.line]], shortfall.line)
    )
    shortages: list[Shortage] = []
    seen: set[str] = set()
    for shortfall in ranked:
        numbers = shortage_of(state, shortfall)
        message = asking.message(numbers, shortfall.line) if len(seen) < SENTENCES_MAX else ""
        is_repeated = message in seen
        seen.add(message)
        reason, message = reasons[shortfall.line], "" if is_repeated else message
        shortages.append(msgspec.structs.replace(numbers, reason=reason, message=message))
    return tuple(shortages)


def message_of(lines: tuple[Shortage, ...]) -> str:
    """Return the sentences of all lines, without the last full stop."""
    first, *others = [line.message for line in lines if line.message]
    pieces = [first, *(display_names.also(message, first) for message in others)]
    if len(pieces) == SENTENCES_MAX and len(lines) > SENTENCES_MAX:
        pieces.append("Other limits have no room either")
    return ". ".join(pieces)


def _envelope(space: Namespace, command: commands.Reserve) -> str:
    """Return the sentence about the envelope that the object would draw from, empty without one."""
    root = space.entries.get(command.root)
    if root is None:
        return ""
    draw = space.draws.get(command.root)
    taken = draw.charge if draw is not None else {}
    parts = [
        f"{taken.get(resource, 0)} of"
        f" {display_names.measure(resource).amount(root.charge.get(resource, 0))}"
        for resource in sorted(command.demand)
        if resource in root.charge or resource in taken
    ]
    rest = (
        f"of which its pods take {display_names.listed(parts)}"
        if parts
        else "which has none of that"
    )
    return f". It is beyond the envelope of {command.root}, {rest}"


def _reason(state: State, short: Short, never: Collection[int]) -> Reason:
    if short.line in never:
        return Reason.EXCEEDS_LIMIT
    return _EXCEEDED[accounts.kind(state.names[short.line][0])]


def shortage_of(state: State, short: Short) -> Shortage:
    """Return the numbers of a line without room."""
    account, key = state.names[short.line]
    used, limit = short.used, state.limit[short.line]
    return Shortage(
        account,
        key,
        short.need,
        used,
        limit,
        max(0, limit - used),
        room_check.over_by(state, short),
        short.total,
        short.own,
    )

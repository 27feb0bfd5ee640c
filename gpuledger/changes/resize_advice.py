"""Resize advice: the amounts of a card that a container could get where its resize is denied.

The amounts are found by trial decisions, so advised amounts fit the card and every quota.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model import card_bookings, cards, events
from ledger.core.model.cards import Placement
from ledger.core.model.commands import Resize
from ledger.core.model.denials import Denial
from ledger.core.model.state import State

_UNITS: Final = {cards.MEMORY: "MiB", cards.CORES: "% of the cores"}


class ResizeTrial(msgspec.Struct, frozen=True):
    """The requested amounts of each card for a container, and a function for other resizes.

    `amounts` are by `cards.MEMORY` (MiB) and `cards.CORES` (percent), if they were given; `command`
    returns the resize with given amounts, and the present ones for the others.
    """

    container: str
    placed: Placement
    amounts: dict[str, int]
    command: Callable[[dict[str, int]], Resize]


def advice(state: State, asked: ResizeTrial) -> str:
    """Return a sentence without full stop: the amounts that fit now and without other pods."""
    phrases = [text for amount in asked.amounts if (text := _most(state, asked, amount))]
    if not phrases:
        return "There is room now: try again"
    never = not _fits_cards(state, asked.placed, asked.command(asked.amounts))
    return f"{'It can never fit:' if never else 'Ask for'} {', and '.join(phrases)}"


def _most(state: State, asked: ResizeTrial, which: str) -> str:
    """Return a sentence about the largest amount that would fit; empty if all of it fits."""
    wanted = asked.amounts[which]
    now = _largest(state, asked, which, wanted)
    if now >= wanted:
        return ""
    with state.trying():
        _leave(state, asked.placed)
        alone = _largest(state, asked, which, max(wanted, _limit(state, asked.placed, which)))
    has, unit = _has(asked, which), _UNITS[which]
    fits = f"at most {now} {unit} now" if now > has else f"no more than its {has} {unit} now"
    if alone <= now:
        return fits
    if alone < wanted and now > has:
        return f"at most {alone} {unit} if no other pod is on the card, {now} {unit} in all now"
    return f"{fits}, {alone} {unit} if no other pod is on the card"


def _has(asked: ResizeTrial, which: str) -> int:
    """Return the container's least amount of any of its cards."""
    parts = (part for part in asked.placed.parts if part.container == asked.container)
    amounts: list[int] = [getattr(share, which) for part in parts for share in part.shares]
    return min(amounts)


def _limit(state: State, placed: Placement, which: str) -> int:
    """Return the amount of the largest of the pod's cards."""
    place = cards.LINES.index(which)
    lines = (state.card_lines[placed.node, uuid][place] for uuid in cards.uuids(placed.parts))
    return max(state.limit[line] for line in lines)


def _largest(state: State, asked: ResizeTrial, which: str, high: int) -> int:
    """Return the largest amount up to `high` that would be admitted, 0 for none."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if isinstance(decide(state, asked.command({which: middle})), Denial):
            high = middle - 1
        else:
            low = middle
    return low


def _leave(state: State, placed: Placement) -> None:
    """Remove every other pod from the cards of a placement. The caller reverts this."""
    mine = cards.uuids(placed.parts).keys()
    for namespace, key in tuple(state.residents[placed.node]):
        other = state.namespaces[namespace].placed[key]
        if other.uid != placed.uid and not mine.isdisjoint(cards.uuids(other.parts)):
            evolve(state, events.Unplaced(namespace, key, other.uid, ""), state.time)


def _fits_cards(state: State, placed: Placement, command: Resize) -> bool:
    """Return whether the resized pod would fit on its cards without other pods."""
    booked = card_bookings.booked(command.parts, initialised=placed.initialised)
    return all(
        amount <= state.limit[line]
        for uuid, booking in booked.items()
        for line, amount in zip(state.card_lines[placed.node, uuid], booking, strict=True)
    )

"""Colon cards: the older annotation format of cards, which HAMi still writes for some vendors."""

from collections.abc import Iterable

from ledger.core.model.cards import Card


def announcement_in_colons(cards: Iterable[Card]) -> str:
    """Return the text that lists cards of one maker; profiles have no place in it."""
    return "".join(_in_colons(card) for card in cards)


def _in_colons(card: Card) -> str:
    health = "true" if card.healthy else "false"
    return (
        f"{card.uuid},{card.slots},{card.memory},{card.cores},{card.type},{card.numa},{health}"
        f",{card.index},{card.mode}:"
    )

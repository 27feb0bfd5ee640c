"""Imagining fleets: the recorded nodes, with copies of some more and without others."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import structs

from extender.analysis.arrivals import Fleet
from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.core.model.cards import Card

COPIES_MAX: Final = 10_000
"""Most nodes that can be added at once."""

_COPIES: Final = re.compile(r"\+?([1-9][0-9]{0,5})=(.+)")


def imagined(fleet: Fleet, more: Sequence[str], without: Iterable[str]) -> Fleet:
    """Return a fleet with `+COUNT=NODE` copies of nodes, and without some. Raises CommandError."""
    found = dict(fleet)
    for text in more:
        count, node = _copies(text)
        for number in range(1, count + 1):
            suffix = f"-copy-{number}"
            found[node + suffix] = {
                uuid + suffix: structs.replace(card, uuid=uuid + suffix)
                for uuid, card in _known(fleet, node).items()
            }
    for node in without:
        _known(fleet, node)
        found.pop(node, None)
    return found


def _copies(text: str) -> tuple[int, str]:
    form = _COPIES.fullmatch(text)
    if form is None or int(form[1]) > COPIES_MAX:
        raise CommandError(
            Exit.USAGE, f"--nodes {text!r}: write +COUNT=NODE, COUNT from 1 to {COPIES_MAX}"
        )
    return int(form[1]), form[2]


def _known(fleet: Fleet, node: str) -> dict[str, Card]:
    if node not in fleet:
        raise CommandError(
            Exit.NOT_FOUND,
            f"node {node} had no cards in that time; `gpuledger cards` shows who has",
        )
    return fleet[node]

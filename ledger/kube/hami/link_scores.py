"""Pair scores: how well each two cards of a node are linked, as HAMi's device plugin announces it.

JSON: `[{"uuid":"GPU-a","score":{"GPU-b":60}}, …]`; the more, the better two cards talk to each
other: 10 across processors up to 100 for each NVLink.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ledger.kube.hami.int32 import INT32_MAX
from ledger.kube.hami.node_devices import TEXT_MAX

Score = Annotated[int, Meta(ge=0, le=INT32_MAX)]

PairScores = dict[tuple[str, str], int]
"""By the uuids of two cards, under both orders of the two."""


class BadScores(ValueError):
    """Scores cannot be read; the text says what is wrong and where."""


class _Links(msgspec.Struct, frozen=True):
    uuid: str = ""
    score: dict[str, Score] = {}


_JSON: Final = msgspec.json.Decoder(list[_Links])


def read(text: str) -> PairScores:
    """Return the scores of pairs. Raises BadScores.

    Where the two cards say different things of their link, the smaller counts.
    """
    if len(text) > TEXT_MAX:
        raise BadScores(f"it is longer than {TEXT_MAX} characters")
    try:
        links = _JSON.decode(text)
    except RecursionError as error:
        raise BadScores("its JSON is nested too deeply") from error
    except ValueError as error:
        raise BadScores(f"its JSON does not list scores: {error}") from error
    told = {(one.uuid, other): score for one in links for other, score in one.score.items()}
    return _both_ways(told)


def announcement(scores: PairScores) -> str:
    """Return the JSON that tells scores of pairs, always the same for the same scores."""
    links: dict[str, dict[str, int]] = {}
    for (one, other), score in sorted(scores.items()):
        links.setdefault(one, {})[other] = score
    return msgspec.json.encode([_Links(uuid, score) for uuid, score in links.items()]).decode()


def _both_ways(told: PairScores) -> PairScores:
    found: PairScores = {}
    for (one, other), score in told.items():
        if one != other:
            low = min(score, told.get((other, one), score))
            found[one, other] = found[other, one] = low
    return found

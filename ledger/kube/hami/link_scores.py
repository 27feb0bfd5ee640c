"""Link scores: the bandwidth class of each pair of cards, as HAMi's device plugin announces it.

JSON: `[{"uuid":"GPU-a","score":{"GPU-b":60}}, …]`. A higher score means a better link: from 10
across processors up to 100 for each NVLink.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ledger.kube.hami.int32 import INT32_MAX
from ledger.kube.hami.node_device_annotation import TEXT_MAX

Score = Annotated[int, Meta(ge=0, le=INT32_MAX)]

PairScores = dict[tuple[str, str], int]
"""Scores by the uuids of two cards, in both orders."""


class BadScores(ValueError):
    """The scores are invalid; the text gives the cause and its place."""


class _Links(msgspec.Struct, frozen=True):
    uuid: str = ""
    score: dict[str, Score] = {}


_JSON: Final = msgspec.json.Decoder(list[_Links])


def read(text: str) -> PairScores:
    """Return the scores of pairs. Raises BadScores.

    If two cards report different scores for their link, the smaller one counts.
    """
    if len(text) > TEXT_MAX:
        raise BadScores(f"it is longer than {TEXT_MAX} characters")
    try:
        links = _JSON.decode(text)
    except RecursionError as error:
        raise BadScores("its JSON is nested too deeply") from error
    except ValueError as error:
        raise BadScores(f"its JSON does not list scores: {error}") from error
    reported = {(link.uuid, other): score for link in links for other, score in link.score.items()}
    return _both_ways(reported)


def announcement(scores: PairScores) -> str:
    """Return the canonical JSON of the scores of pairs."""
    links: dict[str, dict[str, int]] = {}
    for (card, other), score in sorted(scores.items()):
        links.setdefault(card, {})[other] = score
    return msgspec.json.encode([_Links(uuid, score) for uuid, score in links.items()]).decode()


def _both_ways(reported: PairScores) -> PairScores:
    scores: PairScores = {}
    for (card, other), score in reported.items():
        if card != other:
            low = min(score, reported.get((other, card), score))
            scores[card, other] = scores[other, card] = low
    return scores

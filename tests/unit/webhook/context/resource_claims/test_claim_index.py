"""The index of claims follows the watch, and keeps reviewed claims for a moment."""

from typing import Any

import pytest
from support.claims.claim_reviews import EXTENDED, claiming_pod, generated, read, resource_claim

from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.context.resource_claims import claim_index
from webhook.context.resource_claims.claim_index import ClaimIndex, place_of

POD = claiming_pod()
PLACE = ("u-p", "g")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def index(clock: Clock) -> ClaimIndex:
    return ClaimIndex(clock)


def claim(name: str, **changed: Any) -> ResourceClaim:
    return read(generated(POD, named=name, **changed))


def names(index: ClaimIndex, place: tuple[str, str] = PLACE) -> list[str]:
    return [known.metadata.name for known in index.at(place)]


def test_claim_has_the_place_that_its_owner_and_annotation_name() -> None:
    assert place_of(claim("a")) == PLACE
    assert place_of(claim("a", annotations={EXTENDED: "true"})) == ("u-p", "")
    assert place_of(claim("a", annotations={EXTENDED: "false"})) is None
    assert place_of(read(resource_claim("a"))) is None


@pytest.mark.parametrize("field", ["apiVersion", "kind", "uid", "controller"])
def test_owner_other_than_a_controlling_pod_gives_no_place(field: str) -> None:
    manifest = generated(POD)
    manifest["metadata"]["ownerReferences"][0][field] = False if field == "controller" else ""
    assert place_of(read(manifest)) is None


def test_claims_are_found_by_name_and_place(index: ClaimIndex) -> None:
    index.note(claim("a"))
    index.note(claim("b"))
    assert names(index) == ["a", "b"]
    assert index.of_name("team", "a") == claim("a")
    index.drop("u-a")
    index.drop("u-other")
    assert names(index) == ["b"]
    assert index.of_name("team", "a") is None


def test_claim_moves_when_its_references_change(index: ClaimIndex) -> None:
    index.note(claim("a"))
    index.note(claim("a", annotations={}))
    assert names(index) == []
    assert index.of_name("team", "a") is not None
    index.drop("u-a")
    assert len(index) == 0


def test_claim_of_a_reused_name_stays_when_the_old_one_is_dropped(index: ClaimIndex) -> None:
    index.note(claim("a"))
    index.note(claim("a", uid="u-new"))
    index.drop("u-a")
    known = index.of_name("team", "a")
    assert known is not None
    assert known.metadata.uid == "u-new"


def test_list_replaces_all_claims_but_those_reviewed(index: ClaimIndex) -> None:
    index.note(claim("a"))
    index.note_reviewed(claim("b"))
    index.relist([claim("c")])
    assert sorted(names(index)) == ["b", "c"]
    index.relist([claim("b"), claim("c")])
    index.relist([claim("c")])
    assert names(index) == ["c"]


def test_reviewed_claim_is_forgotten_unless_the_watch_shows_it(
    index: ClaimIndex, clock: Clock
) -> None:
    index.note_reviewed(claim("a"))
    clock.now += 5
    index.note_reviewed(claim("b"))
    assert index.reviewed_seconds("u-a") == 5
    index.note(claim("b"))
    assert [index.is_reviewed_only(uid) for uid in ("u-a", "u-b")] == [True, False]
    clock.now += claim_index.REVIEWED_SECONDS
    assert index.of_name("team", "a") is None
    assert names(index) == ["b"]


def test_review_does_not_replace_a_claim_of_the_watch(index: ClaimIndex, clock: Clock) -> None:
    index.note(claim("a"))
    index.note_reviewed(claim("a"))
    clock.now += 2 * claim_index.REVIEWED_SECONDS
    assert names(index) == ["a"]


def test_reviewed_claims_are_bounded(index: ClaimIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_index, "REVIEWED_MAX", 2)
    for name in ("a", "b", "c"):
        index.note_reviewed(claim(name))
    assert names(index) == ["b", "c"]


def test_claims_are_bounded_and_a_full_index_is_noted(
    index: ClaimIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_index, "CLAIMS_MAX", 2)
    for name in ("a", "b"):
        index.note(claim(name))
    index.note(claim("b"))
    assert (names(index), index.has_rejected) == (["a", "b"], False)
    index.note(claim("c"))
    assert (names(index), index.has_rejected) == (["a", "b"], True)
    index.note_reviewed(claim("d"))
    assert not index.is_reviewed_only("u-d")

"""Scores, order and blocks when a pod is fitted on many nodes at once."""

import pytest
from support.builders.fit_requests import PLAIN, but, card, node, pod
from support.harness.fit_harness import answers, asked
from support.oracles.card_offers import Terms

from extender.fit import feasible_nodes
from extender.fit.feasible_nodes import chosen_parts, priorities
from extender.fit.node_failure_reasons import reasons_of
from extender.fit.node_score_expression import NodeScore
from ledger.core.model.cards import Phase
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    PodDeviceRequest,
)


@pytest.mark.parametrize(
    ("policy", "order"), [("binpack", [1, 0, 2]), ("spread", [2, 0, 1]), ("whole", [1, 0, 2])]
)
def test_nodes_are_scored_by_how_full_they_become(policy: str, order: list[int]) -> None:
    half = node(card("a", used_slots=5, used_memory=8_000), card("b", 1))
    full = node(card("a", used_slots=9, used_memory=16_000), card("b", 1, used_slots=10))
    empty = node(card("a"), card("b", 1))
    given = answers([half, full, empty], pod(PLAIN), Terms(policy, ("binpack",)))
    scores = [reply.score for reply in given]
    assert sorted(range(3), key=lambda place: -scores[place]) == order


def test_an_own_expression_scores_nodes() -> None:
    hosts = [node(card("a")), node(card("a"), card("b", 1)), node()]
    fits, _ = asked(hosts, pod(PLAIN), own=NodeScore("10*cards - 100*whole"))
    assert fits.score[:2].tolist() == [10.0, -30.0]
    assert priorities(fits).tolist() == [10, 0, 0]


def test_the_best_node_has_ten_and_all_have_ten_when_they_are_equal() -> None:
    hosts = [node(card("a", used_slots=used)) for used in (0, 2, 8, 10)]
    fits, _ = asked(hosts, pod(PLAIN))
    assert priorities(fits).tolist() == [0, 2, 10, 0]
    fits, _ = asked([hosts[0]] * 3, pod(PLAIN))
    assert priorities(fits).tolist() == [10, 10, 10]


def test_nodes_are_answered_in_the_order_in_which_they_are_asked_about() -> None:
    hosts = [node(card(f"card-{place}")) for place in range(9)]
    fits, arrays = asked(hosts, pod(PLAIN), order=[7, 2])
    assert [
        chosen_parts(fits, place, arrays, pod(PLAIN))[0].shares[0].uuid for place in (0, 1)
    ] == [
        "card-7",
        "card-2",
    ]


def test_more_nodes_than_are_worked_on_at_a_time_are_answered_like_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts = [node(*(card(str(at), at, numa=at % 2) for at in range(1 + size))) for size in range(7)]
    wish = pod(but(PLAIN, count=3), numa_bind=True)
    together = answers(hosts, wish, order=[6, 0, 5, 1, 4, 2, 3])
    for rows in (1, 2, 3):
        monkeypatch.setattr(feasible_nodes, "BLOCK_ROWS", rows)
        assert answers(hosts, wish, order=[6, 0, 5, 1, 4, 2, 3]) == together
        assert answers(hosts, wish, order=[6, 0]) == together[:2]


def test_containers_are_given_cards_as_long_as_any_node_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = node(card("a", slots=2))
    hosts = [node(), two, node(card("b", slots=10)), two]
    wish = PodDeviceRequest(
        tuple(
            ContainerDeviceRequests(str(number), phase, (but(PLAIN, memory=1, cores=0),))
            for number, phase in enumerate((Phase.SIDECAR, Phase.INIT, *[Phase.APP] * 3))
        )
    )
    for rows in (1, 4):
        monkeypatch.setattr(feasible_nodes, "BLOCK_ROWS", rows)
        together = answers(hosts, wish)
        assert [reply.parts is not None for reply in together] == [False, False, True, False]
        assert together[1].reason == "1/1 CardTimeSlicingExhausted"
        fits, _ = asked(hosts, wish)
        assert len(fits.steps) == 5
    assert len(asked([two], wish)[0].steps) < 5


def test_nothing_is_answered_about_no_nodes() -> None:
    fits, _ = asked([node(card("a"))], pod(PLAIN), order=[])
    assert reasons_of(fits) == []
    assert priorities(fits).tolist() == []

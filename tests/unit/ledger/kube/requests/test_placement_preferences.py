"""Placement preferences of pods, and refused values."""

import pytest

from ledger.core.model.denials import Denial, Reason
from ledger.kube.requests.device_requests import CARD_POLICIES, NODE_POLICIES, Weights
from ledger.kube.requests.placements.placement_preferences import (
    CARD_POLICY,
    NODE_POLICY,
    NUMA_BIND,
    WEIGHT_MAX,
    WEIGHTS,
    PlacementPreferences,
    preferences_of,
)


def said(**annotations: str) -> PlacementPreferences:
    preferences = preferences_of(annotations)
    assert isinstance(preferences, PlacementPreferences), preferences
    return preferences


def test_preferences_are_empty_when_a_pod_has_no_annotations() -> None:
    empty = dict.fromkeys((NODE_POLICY, CARD_POLICY, WEIGHTS, NUMA_BIND), " ")
    assert said() == said(**empty) == PlacementPreferences()


@pytest.mark.parametrize("word", NODE_POLICIES)
def test_every_policy_of_nodes_is_understood_in_any_case_of_letters(word: str) -> None:
    assert said(**{NODE_POLICY: f" {word.title()} "}).node_policy == word


def test_several_policies_of_cards_stand_in_order_of_importance() -> None:
    text = ", ".join(reversed(CARD_POLICIES))
    assert said(**{CARD_POLICY: text}).card_policies == tuple(reversed(CARD_POLICIES))
    assert said(**{CARD_POLICY: "numa,,numa,binpack"}).card_policies == ("numa", "binpack")


@pytest.mark.parametrize(("text", "bound"), [("1", True), ("True", True), ("F", False)])
def test_numa_binding_is_what_go_reads_as_a_truth_value(text: str, bound: bool) -> None:
    assert said(**{NUMA_BIND: text}).numa_bind is bound


def test_weights_are_given_in_any_order() -> None:
    assert said(**{WEIGHTS: "memory=3, slot = 1,core=0"}).weights == Weights(1, 0, 3)


@pytest.mark.parametrize(
    ("key", "text", "remedy"),
    [
        (NODE_POLICY, "binpak", "binpack or spread or whole"),
        (NODE_POLICY, "binpack,spread", "one word"),
        (NODE_POLICY, "numa", "binpack or spread"),
        (CARD_POLICY, "numa,nuna", "topology-aware"),
        (NUMA_BIND, "yes", "true or false"),
        (WEIGHTS, "slot=1,core=1", "all three"),
        (WEIGHTS, "slot=1,core=1,memory=1,slot=1", "all three"),
        (WEIGHTS, "slot=1,slot=1,memory=1", "all three"),
        (WEIGHTS, "slot=0,core=0,memory=0", "above 0"),
        (WEIGHTS, "slot=1,core=1,memory=-1", "whole numbers"),
        (WEIGHTS, "slot=1,core=1,memory=1.5", "whole numbers"),
        (WEIGHTS, f"slot=1,core=1,memory={WEIGHT_MAX + 1}", f"0 to {WEIGHT_MAX}"),
        (WEIGHTS, "1,1,3", "slot=1,core=1,memory=3"),
    ],
)
def test_preference_is_refused_with_a_remedy_when_unknown(key: str, text: str, remedy: str) -> None:
    denial = preferences_of({key: text})
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.INVALID_POLICY
    assert (denial.field, denial.value) == (f"metadata.annotations[{key}]", text)
    assert remedy in denial.remedy
    assert not denial.transient


def test_an_absurdly_long_word_is_cut_where_it_is_quoted() -> None:
    denial = preferences_of({NODE_POLICY: "x" * 100_000})
    assert isinstance(denial, Denial)
    assert len(denial.value) < 100
    assert len(denial.message) < 200

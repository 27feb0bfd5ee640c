"""Fitting all nodes at once, against a second opinion that goes card by card."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.fit_cases import case
from support.harness.fit_harness import answers
from support.oracles.fit_oracle import answer

SEEDS = st.integers(0, 2**40)
"""Cases are small as they are; the message of a failure names the seed."""


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_all_nodes_at_once_are_answered_as_one_after_the_other(seed: int) -> None:
    asked = case(seed)
    expected = [answer(node, asked.request, asked.terms) for node in asked.nodes]
    assert answers(asked.nodes, asked.request, asked.terms) == expected


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_neither_the_order_of_nodes_nor_their_company_changes_an_answer(seed: int) -> None:
    asked = case(seed)
    together = answers(asked.nodes, asked.request, asked.terms)
    order = list(range(len(asked.nodes)))
    Random(seed).shuffle(order)
    expected = [together[place] for place in order]
    assert answers(asked.nodes, asked.request, asked.terms, order) == expected
    for place in order:
        assert answers(asked.nodes, asked.request, asked.terms, [place]) == [together[place]]

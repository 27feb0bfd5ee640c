"""Consumed capacity: the amounts are those that kube-scheduler computes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.claims.device_supplies import capacity

from ledger.kube.requests.quantities import parse_nano
from ledger.kube.resource_claims.consumed_capacity import (
    UNIT,
    CapacityRule,
    amounts_consumed,
    capacity_rule,
)

RECORDED = Path(__file__).parents[4] / "fixtures" / "dra" / "consumed_capacity.json"
CASES = json.loads(RECORDED.read_text())


def test_consumed_capacity_equals_that_of_the_scheduler() -> None:
    """The cases are answers of CmpRequestOverCapacity and its rounding of Kubernetes v1.37.0."""
    assert len(CASES) > 100
    for case in CASES:
        rules = [capacity_rule(name, capacity(body)) for name, body in case["capacity"].items()]
        asked = {name: parse_nano(text) for name, text in case["requests"].items()}
        expected = case["consumed"]
        if expected is not None:
            expected = {name: parse_nano(text) for name, text in expected.items()}
        assert amounts_consumed(rules, asked) == expected, case


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        ({"validRange": {"min": "1Gi", "step": "1Gi"}}, "7500Mi", "8Gi"),
        ({"validRange": {"min": "1Gi", "step": "1Gi"}}, "0", "1Gi"),
        ({"validRange": {"min": "3Gi", "step": "2Gi"}}, "4Gi", "5Gi"),
        ({"validRange": {"min": "1Gi", "max": "8Gi"}}, "9Gi", None),
        ({"validRange": {"min": "1Gi", "max": "8Gi"}}, "8Gi", "8Gi"),
        ({"validValues": ["10Gi", "20Gi"], "default": "10Gi"}, "11Gi", "20Gi"),
        ({"validValues": ["10Gi", "20Gi"], "default": "10Gi"}, "21Gi", None),
        ({"default": "5Gi"}, None, "5Gi"),
        ({"default": "100Gi"}, None, None),
        (None, None, "80Gi"),
        (None, "81Gi", None),
        (None, "7500Mi", "7500Mi"),
        ({"validRange": {"min": "1Gi", "step": "1Gi"}}, "8Ei", None),
    ],
)
def test_consumed_capacity_is_rounded_by_the_policy(
    policy: dict[str, Any] | None, asked: str | None, consumed: str | None
) -> None:
    rule = capacity_rule("memory", capacity({"value": "80Gi", "requestPolicy": policy}))
    amount = rule.consumed(None if asked is None else parse_nano(asked))
    assert amount == (None if consumed is None else parse_nano(consumed))


def test_negative_amounts_of_a_slice_count_as_nothing() -> None:
    rule = capacity_rule("m", capacity({"value": "-5", "requestPolicy": {"default": "-9"}}))
    assert (rule.value, rule.default) == (0, 0)


def test_a_device_without_the_requested_capacity_is_refused() -> None:
    rules = [CapacityRule("memory", 5 * UNIT)]
    assert amounts_consumed(rules, {"memory": UNIT}) == {"memory": UNIT}
    assert amounts_consumed(rules, {"memory": UNIT, "cores": 0}) is None


@given(
    least=st.integers(0, 100),
    step=st.integers(1, 50),
    asked=st.integers(0, 10_000),
    value=st.integers(0, 10_000),
)
def test_consumed_steps_cover_the_request_by_less_than_a_step(
    least: int, step: int, asked: int, value: int
) -> None:
    amount = CapacityRule("m", value, least=least, step=step).consumed(asked)
    smallest = next(number for number in range(least, 10_200, step) if number >= asked)
    assert amount == (smallest if smallest <= value else None)

"""How roots are charged is noticed to be over, whoever was told of it first."""

from typing import Any

from webhook.context.policies import NamespacePolicy
from webhook.settlement.workloads.charging_modes import ChargingModes

USUAL, PODS_ONLY = NamespacePolicy(), NamespacePolicy(pods_only=True)


class Policies:
    def __init__(self) -> None:
        self.now = USUAL

    def of(self, _: str) -> NamespacePolicy:
        return self.now


def charging_modes() -> tuple[ChargingModes, Policies]:
    policies: Any = Policies()
    return ChargingModes(policies), policies


def test_nothing_has_changed_while_everything_is_treated_as_before() -> None:
    found, _ = charging_modes()
    assert found.of("red") == found.of("red")
    assert not found.changed()


def test_a_change_is_noticed_also_when_another_object_was_already_treated_by_it() -> None:
    found, policies = charging_modes()
    found.of("red")
    policies.now = PODS_ONLY
    assert found.of("red").pods_only
    assert found.changed()
    found.forget()
    assert found.of("red").pods_only
    assert not found.changed()


def test_a_change_that_was_taken_back_is_noticed_if_any_object_was_treated_by_it() -> None:
    found, policies = charging_modes()
    found.of("red")
    policies.now = PODS_ONLY
    found.of("red")
    policies.now = USUAL
    assert found.changed()

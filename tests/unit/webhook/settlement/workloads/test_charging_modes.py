"""A change of the charging mode is noticed, even if an object already used the new one."""

from typing import Any

from webhook.context.namespace_policies import NamespacePolicy
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


def test_modes_are_unchanged_when_the_policy_is_unchanged() -> None:
    modes, _ = charging_modes()
    assert modes.of("red") == modes.of("red")
    assert not modes.changed()


def test_change_is_noticed_when_an_object_already_used_the_new_mode() -> None:
    modes, policies = charging_modes()
    modes.of("red")
    policies.now = PODS_ONLY
    assert modes.of("red").pods_only
    assert modes.changed()
    modes.forget()
    assert modes.of("red").pods_only
    assert not modes.changed()


def test_reverted_change_is_noticed_when_an_object_used_it() -> None:
    modes, policies = charging_modes()
    modes.of("red")
    policies.now = PODS_ONLY
    modes.of("red")
    policies.now = USUAL
    assert modes.changed()

"""Consumed capacity: how much of a device's capacity a request consumes, as kube-scheduler rounds.

Amounts are exact integers in billionths of the capacity's unit, the finest step of a quantity.
"""

import msgspec


class CapacityRule(msgspec.Struct, frozen=True, gc=False):
    """One capacity of a device, with its request policy.

    `least`, `most` and `step` are those of a valid range; None where they are not given.
    """

    name: str
    value: int
    default: int | None = None
    least: int | None = None
    most: int | None = None
    step: int | None = None
    values: tuple[int, ...] = ()


def consumed(rule: CapacityRule, requested: int | None) -> int | None:
    """Return the consumed amount, None if the device cannot satisfy the request."""
    if requested is None:
        return rule.value if rule.default is None else rule.default
    amount = requested
    if rule.least is not None:
        amount = max(amount, rule.least)
        if rule.step:
            amount = rule.least + -(-(amount - rule.least) // rule.step) * rule.step
    elif rule.values:
        amount = next((value for value in rule.values if value >= amount), amount)
    return amount if amount <= rule.value else None

"""Consumed capacity: how much of a device's capacity a request consumes, as kube-scheduler rounds.

Amounts are exact integers in billionths of the capacity's unit, the finest step of a quantity. So
the rounding of Kubernetes 1.36 (whole units) and that of 1.37 (thousandths) give the same amounts.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from ledger.kube.requests.quantities import parse_nano
from ledger.kube.resource_claims.dra_objects import Capacity, RequestPolicy

UNIT: Final = 10**9
"""Billionths in one unit."""

REMEMBERED_MAX: Final = 1_024
"""Entries of the cache; thousands of equal cards have the same few capacities."""

Quantity = str | int


class CapacityRule(msgspec.Struct, frozen=True, gc=False):
    """One capacity of a device, with its request policy.

    `value` is the capacity of the whole device. `default` is consumed if nothing is requested.
    `least`, `most` and `step` are those of a valid range, and `values` the valid values, ascending;
    None or empty where the policy does not give them.
    """

    name: str
    value: int
    default: int | None = None
    least: int | None = None
    most: int | None = None
    step: int | None = None
    values: tuple[int, ...] = ()

    def consumed(self, requested: int | None) -> int | None:
        """Return the consumed amount, None if the device cannot satisfy the request."""
        amount = self._rounded(requested)
        return amount if amount <= self.value and self._is_valid(amount) else None

    def _rounded(self, requested: int | None) -> int:
        if requested is None:
            return self.value if self.default is None else self.default
        if self.least is not None:
            if requested <= self.least or not self.step:
                return max(requested, self.least)
            return self.least - (self.least - requested) // self.step * self.step
        return next((value for value in self.values if value >= requested), requested)

    def _is_valid(self, amount: int) -> bool:
        if amount == self.default:
            return True
        if self.most is not None and amount > self.most:
            return False
        return not self.values or amount in self.values


def capacity_rule(name: str, capacity: Capacity) -> CapacityRule:
    """Return the rule of a capacity. Raises QuantityError.

    Negative amounts of a slice count as 0, because a device cannot give less than nothing.
    """
    policy = capacity.request_policy or RequestPolicy()
    bounds = policy.valid_range
    if bounds is None:
        values = tuple(policy.valid_values or ())
        return _rule(name, capacity.value, policy.default, None, None, None, values)
    return _rule(name, capacity.value, policy.default, bounds.min, bounds.max, bounds.step, ())


@lru_cache(maxsize=REMEMBERED_MAX)
def _rule(
    name: str,
    value: Quantity,
    default: Quantity | None,
    least: Quantity | None,
    most: Quantity | None,
    step: Quantity | None,
    values: tuple[Quantity, ...],
) -> CapacityRule:
    amounts = tuple(sorted(map(_amount, values)))
    bounds = _optional(least), _optional(most), _optional(step)
    return CapacityRule(name, _amount(value), _optional(default), *bounds, amounts)


def amounts_consumed(
    rules: Iterable[CapacityRule], requested: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the consumed amounts by capacity, None if the device cannot satisfy the requests.

    A device without a requested capacity cannot satisfy the request.
    """
    amounts: dict[str, int] = {}
    for rule in rules:
        amount = rule.consumed(requested.get(rule.name))
        if amount is None:
            return None
        amounts[rule.name] = amount
    return amounts if requested.keys() <= amounts.keys() else None


def up(amount: int, unit: int) -> int:
    """Return billionths as a number of `unit` billionths, rounded up."""
    return -(-amount // unit)


def _amount(quantity: Quantity) -> int:
    return max(0, parse_nano(quantity))


def _optional(quantity: Quantity | None) -> int | None:
    return None if quantity is None else _amount(quantity)

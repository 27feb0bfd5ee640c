"""Amounts: how much of each resource, `{resource name: int}` in the resource's own integer unit.

`nvidia.com/gpu` counts cards, `nvidia.com/gpumem` is MiB, `nvidia.com/gpucores` is percent of one
card. A resource that is not named is zero; zeros are never stored. An amounts value is never
changed after it was made: functions here return new values (or one of their arguments).
"""

from typing import Final

Amounts = dict[str, int]

AMOUNT_MAX: Final = 2**53
"""Largest amount of one resource, which JSON readers in every language hold exactly."""

OBJECT_MAX: Final = 2**40
"""Largest amount of an extended resource that one object may ask for.

The demands of all objects are added up without a limit, and must fit 64 bits as soon as an account
limits them. With this bound an overflow takes eight million objects.
"""


def most_of(resource: str) -> int:
    """Return the largest amount of a resource that one object may ask for.

    Bytes of memory are large numbers by themselves.
    """
    return OBJECT_MAX if "/" in resource else AMOUNT_MAX


def largest(left: Amounts, right: Amounts) -> Amounts:
    """Return the larger amount of each resource."""
    if left is right or not left or left == right:
        return right
    if not right:
        return left
    merged = dict(left)
    for resource, amount in right.items():
        if amount > merged.get(resource, 0):
            merged[resource] = amount
    return merged


def smallest(left: Amounts, right: Amounts) -> Amounts:
    """Return the smaller amount of each resource."""
    if left == right:
        return left
    low = {resource: min(amount, right.get(resource, 0)) for resource, amount in left.items()}
    return {resource: amount for resource, amount in low.items() if amount}


def plus(left: Amounts, right: Amounts) -> Amounts:
    """Return the sum of each resource."""
    if not left:
        return right
    if not right:
        return left
    total = dict(left)
    for resource, amount in right.items():
        total[resource] = total.get(resource, 0) + amount
    return total


def rise(before: Amounts, after: Amounts) -> Amounts:
    """Return by how much each resource is more in `after` than in `before`."""
    if before == after:
        return {}
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}


def covers(large: Amounts, small: Amounts) -> bool:
    """Return whether `large` is at least `small` in every resource."""
    if large is small or large == small:
        return True
    return all(large.get(resource, 0) >= amount for resource, amount in small.items())


def without_zeros(amounts: Amounts) -> Amounts:
    """Return the amounts without zeros, sorted by name."""
    return {resource: amounts[resource] for resource in sorted(amounts) if amounts[resource]}


def minus(large: Amounts, small: Amounts) -> Amounts:
    """Return the amounts of `large` reduced by `small`, which it covers."""
    if not small:
        return large
    left = {name: amount - small.get(name, 0) for name, amount in large.items()}
    assert all(amount >= 0 for amount in left.values()), "the larger amounts must cover the smaller"
    return {name: amount for name, amount in left.items() if amount}

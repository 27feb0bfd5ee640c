"""Hard limits: the keys and quantities of a quota, as amounts of the ledger.

A key is `limits.` or `requests.` and a managed resource, `limits.nvidia.com/gpumem`. With a type
of card before it, `limits.v100.nvidia.com/gpumem`, it limits what only cards of that type are
asked for. Quantities are whole numbers in the unit that pods use, so a vendor's memory factor
applies to them as well.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ledger.core.amounts import AMOUNT_MAX
from ledger.kube import quantities
from ledger.kube.containers import shown
from ledger.kube.objects import Quantities
from ledger.kube.quantities import BinarySuffix, Fraction, QuantityError, TooLarge
from ledger.kube.rules import DemandRules
from ledger.kube.selectors import Warn

PREFIXES: Final = ("limits.", "requests.")
_MILLI: Final = 1_000
_RULES_MAX: Final = 8
"""A process has one set of rules; tests have some."""


def read(
    hard: Quantities, rules: DemandRules, warn: Warn, *, zero_is_unlimited: bool
) -> dict[str, int]:
    """Return the limits that can be enforced, by quota key; `warn` hears of the others."""
    managed = _keys(rules)
    limits: dict[str, int] = {}
    for key in sorted(hard):
        if key not in managed:
            problem = _lint(key, managed, rules)
            if problem:
                warn(f"{key}: {problem}")
            continue
        try:
            limit, oddity = _limit(hard[key], managed[key])
        except QuantityError as error:
            warn(f"{key}: {shown(hard[key])} {error}: this key limits nothing")
            continue
        if oddity:
            warn(f"{key}: {oddity}")
        if limit or not zero_is_unlimited:
            limits[key] = limit
    return limits


def is_managed(key: str, rules: DemandRules) -> bool:
    """Return whether a quota key limits something that is charged."""
    return key in _keys(rules)


def quantity(key: str, amount: int, rules: DemandRules) -> str:
    """Return an amount of the ledger as the quota key counts it, rounded up to a whole unit.

    A key that limits nothing any more counts in the ledger's own unit.
    """
    resource, unit = _keys(rules).get(key, ("", 0))
    if resource == "cpu" and amount % _MILLI:
        return f"{amount}m"
    return str(-(-amount // (_MILLI if resource == "cpu" else unit or 1)))


def hints(hard: Quantities, rules: DemandRules) -> Iterator[str]:
    """Yield what is enforced as written, and may still surprise."""
    for resource, unit in _units(rules).items():
        both = [prefix + resource for prefix in PREFIXES if prefix + resource in hard]
        if len(both) > 1 and "/" in resource:
            yield f"{' and '.join(both)} limit the same, and the smaller one holds; keep one"
        if unit and f"requests.{resource}" in hard and resource in rules.of_cards:
            yield (
                f"requests.{resource}: Kubernetes counts this key too, and adds the amount of one"
                f" card whatever the number of cards; limits.{resource} is counted here alone"
            )


def _units(rules: DemandRules) -> dict[str, int]:
    """Return the factor of every managed resource: 0 for what is no memory of cards."""
    units: dict[str, int] = {}
    for vendor in rules.vendors:
        for resource in vendor.charged():
            unit = vendor.memory_factor if resource == vendor.memory else 0
            units[resource] = unit
            units.update({names[resource]: unit for names in rules.typed.values()})
    return units | dict.fromkeys(rules.besides, 0)


@lru_cache(maxsize=_RULES_MAX)
def _keys(rules: DemandRules) -> dict[str, tuple[str, int]]:
    """Return the resource behind every quota key that is managed, and its factor."""
    keys: dict[str, tuple[str, int]] = {}
    for resource, unit in _units(rules).items():
        keys.update({prefix + resource: (resource, unit) for prefix in PREFIXES})
        if "/" not in resource:
            keys[resource] = (resource, unit)  # a native one's bare name means its requests
    return keys


def _limit(value: str | int, managed: tuple[str, int]) -> tuple[int, str]:
    """Return a limit in the ledger's unit and what is odd about it. Raises QuantityError."""
    resource, unit = managed
    if resource == "cpu":
        return quantities.parse_milli(value), ""
    if "/" not in resource:
        return quantities.parse_scaled(value), ""
    oddity = ""
    try:
        limit = quantities.parse_integer(value)
    except Fraction:
        limit = quantities.parse_scaled(value) - 1  # parse_scaled rounds up
        oddity = f"{shown(value)} is not a whole number and holds as {limit}"
    except BinarySuffix:
        limit = quantities.parse_scaled(value)
        oddity = f"{shown(value)} counts no bytes here and means {limit}; write a plain number"
    limit *= unit or 1
    if limit > AMOUNT_MAX:
        raise TooLarge("is beyond 2^53")
    return limit, oddity


def _lint(key: str, managed: dict[str, tuple[str, int]], rules: DemandRules) -> str:
    """Return what to tell somebody who expects something of a key that nobody enforces."""
    prefix = next((one for one in PREFIXES if key.startswith(one)), "")
    resource = key[len(prefix) :]
    for vendor in rules.vendors:
        if vendor.percentage and f".{resource}".endswith(f".{vendor.percentage}"):
            return f"percentages of cards cannot be added up; limit {vendor.memory} instead"
    if not prefix and f"limits.{key}" in managed:
        return f"nobody enforces this key; write limits.{key}"
    cards = next((one for one in rules.of_cards if resource.endswith(f".{one}")), "")
    if cards:
        return _no_type(resource.removesuffix(f".{cards}"), rules)
    if prefix == "limits." and "/" in resource:
        return "Kubernetes does not enforce this key and it is not a managed resource"
    return ""


def _no_type(name: str, rules: DemandRules) -> str:
    known = f"known are {', '.join(rules.known_types)}" if rules.types else "none is known"
    return (
        f"{shown(name)!r} is no known type of card ({known}), so nobody enforces this key; use a"
        " known one, or add it with the setting gpu_types"
    )

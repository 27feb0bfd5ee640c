"""Hard limits: the keys and quantities in `spec.hard` of any quota, as amounts of the ledger.

A key is `limits.` or `requests.` and a managed resource, for example `limits.nvidia.com/gpumem`.
With a card type before the resource, `limits.v100.nvidia.com/gpumem`, the key limits only requests
for cards of that type. Quantities are whole numbers in the unit that pods use, so a vendor's
memory factor applies to them as well.

A binary suffix counts bytes. The API server keeps such a suffix, and never adds one to a plain
number: 16384 stays `16384`, and 16000 becomes `16k`. So `16Gi` is always a mistake, while `16k` or
`16G` may be the API server's form of a plain number.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from ledger.core.model.amounts import AMOUNT_MAX
from ledger.kube.api.label_selectors import Warn
from ledger.kube.api.objects import Quantities
from ledger.kube.api.quoting import shown
from ledger.kube.quotas import unenforced_quota_keys
from ledger.kube.quotas.unenforced_quota_keys import PREFIXES
from ledger.kube.requests import quantities
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import (
    BinarySuffix,
    Fraction,
    Negative,
    NotAQuantity,
    QuantityError,
    TooLarge,
)

_MILLI: Final = 1_000
_VAST: Final = ("G", "T", "P")
_RULES_MAX: Final = 8
"""Entries of the cache; a process has one set of rules, tests have several."""


def read(
    hard: Quantities, rules: DemandRules, warn: Warn, *, zero_is_unlimited: bool
) -> dict[str, int]:
    """Return the enforceable limits, by quota key; call `warn` for each of the others."""
    managed = _keys(rules)
    limits: dict[str, int] = {}
    for key in sorted(hard):
        if key not in managed:
            problem = unenforced_quota_keys.warning(key, managed, rules)
            if problem:
                warn(f"{key}: {problem}")
            continue
        try:
            limit, oddity = _limit(hard[key], managed[key])
        except QuantityError as error:
            warn(
                f"{key}: {shown(hard[key])} {error}: this key limits nothing; write a whole number"
                f" up to {AMOUNT_MAX}"
            )
            continue
        if oddity:
            warn(f"{key}: {oddity}")
        if limit or not zero_is_unlimited:
            limits[key] = limit
    return limits


class InvalidQuantity(NamedTuple):
    """A quantity that is certainly a mistake: its key, value, cause and remedy."""

    key: str
    value: str
    why: str
    remedy: str


def invalid_quantities(
    hard: Quantities, before: Quantities, rules: DemandRules
) -> Iterator[InvalidQuantity]:
    """Yield the invalid quantities of managed keys that differ from `before`.

    Invalid are quantities with a binary suffix, negative quantities, and texts that are not
    quantities. The API server refuses some of them in a ResourceQuota, and none in a
    UniverseResourceQuota.
    """
    managed = _keys(rules)
    for key in sorted(hard):
        if key not in managed or before.get(key) == hard[key]:
            continue
        try:
            _limit(hard[key], managed[key], strict=True)
        except BinarySuffix as error:
            yield InvalidQuantity(
                key, shown(hard[key]), str(error), _instead(hard[key], managed[key])
            )
        except (NotAQuantity, Negative) as error:
            resource, _ = managed[key]
            remedy = f"{resource} counts {_unit(managed[key])}: write a whole number without a sign"
            yield InvalidQuantity(key, shown(hard[key]), str(error), remedy)
        except QuantityError:
            continue  # too large to be counted: it limits nothing, as its author probably meant


def corrected(hard: Quantities, rules: DemandRules) -> Quantities:
    """Return limits with plain numbers instead of quantities with a binary suffix."""
    managed = _keys(rules)
    return {
        key: _plain(value, managed[key]) if key in managed else value for key, value in hard.items()
    }


def is_managed(key: str, rules: DemandRules) -> bool:
    """Return whether a quota key limits a charged resource."""
    return key in _keys(rules)


def quantity(key: str, amount: int, rules: DemandRules) -> str:
    """Return an amount of the ledger in the unit of the quota key, rounded up to a whole unit.

    A key that is no longer managed has the ledger's own unit.
    """
    resource, unit = _keys(rules).get(key, ("", 0))
    if resource == "cpu" and amount % _MILLI:
        return f"{amount}m"
    return str(-(-amount // (_MILLI if resource == "cpu" else unit or 1)))


def hints(hard: Quantities, rules: DemandRules) -> Iterator[str]:
    """Yield hints about limits that are enforced as written but may surprise the author."""
    for resource, unit in _units(rules).items():
        both = [prefix + resource for prefix in PREFIXES if prefix + resource in hard]
        if len(both) > 1 and "/" in resource:
            yield f"{' and '.join(both)} limit the same, and the smaller one holds; keep one"
        if unit and f"requests.{resource}" in hard and resource in rules.of_cards:
            yield (
                f"requests.{resource}: Kubernetes counts this key too, and adds the amount of one"
                f" card regardless of the number of cards; limits.{resource} is counted here alone"
            )
    managed = _keys(rules)
    for key in sorted(hard.keys() & managed.keys()):
        vast = _vast(hard[key], managed[key])
        if vast:
            yield f"{key}: {vast}"


def _units(rules: DemandRules) -> dict[str, int]:
    """Return the memory factor of every managed resource; 0 for resources other than memory."""
    units: dict[str, int] = {}
    for vendor in rules.vendors:
        for resource in vendor.charged():
            unit = vendor.memory_factor if resource == vendor.memory else 0
            units[resource] = unit
            units.update({names[resource]: unit for names in rules.typed.values()})
    return units | dict.fromkeys(rules.besides, 0)


@lru_cache(maxsize=_RULES_MAX)
def _keys(rules: DemandRules) -> dict[str, tuple[str, int]]:
    """Return the resource and its memory factor for every managed quota key."""
    keys: dict[str, tuple[str, int]] = {}
    for resource, unit in _units(rules).items():
        keys.update({prefix + resource: (resource, unit) for prefix in PREFIXES})
        if "/" not in resource:
            keys[resource] = (resource, unit)  # the bare name of a native resource: its requests
    return keys


def _limit(value: str | int, managed: tuple[str, int], *, strict: bool = False) -> tuple[int, str]:
    """Return a limit in the ledger's unit and a warning about it, "" without one.

    Raises QuantityError; BinarySuffix only if `strict` is set.
    """
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
        oddity = f"{shown(value)} is not a whole number and holds as {limit}; write {limit}"
    except BinarySuffix as error:
        if strict:
            raise
        limit = _meant(value, unit)
        oddity = f"{shown(value)} {error}, so it holds as {limit}; {_instead(value, managed)}"
    limit *= unit or 1
    if limit > AMOUNT_MAX:
        raise TooLarge("is beyond 2^53")
    return limit, oddity


def _meant(value: str | int, unit: int) -> int:
    """Return the value of a quantity with a binary suffix, in the unit that pods use.

    Memory of cards is counted in `unit` MiB and rounded up. For other resources `unit` is 0, and
    the value is the number that Kubernetes reads. Raises QuantityError.
    """
    return quantities.parse_units(value, unit * quantities.MEBIBYTE if unit else 1)


def _instead(value: str | int, managed: tuple[str, int]) -> str:
    """Return the remedy for a quantity with a binary suffix: the plain number to write."""
    resource, unit = managed
    try:
        plain = _meant(value, unit)
    except QuantityError:
        return f"{resource} counts {_unit(managed)}: write a plain whole number"
    return f"{resource} counts {_unit(managed)}: write {plain} for {shown(value)}"


def _plain(value: str | int, managed: tuple[str, int]) -> str | int:
    """Return a quantity as a plain number if it has a binary suffix but does not count bytes."""
    try:
        _limit(value, managed, strict=True)
    except BinarySuffix:
        with suppress(QuantityError):
            return str(_meant(value, managed[1]))
    except QuantityError:
        pass
    return value


def _unit(managed: tuple[str, int]) -> str:
    """Return the unit of a key, as text for messages."""
    unit = managed[1]
    if not unit:
        return "whole units"
    return "MiB" if unit == 1 else f"{unit} MiB"


def _vast(value: str | int, managed: tuple[str, int]) -> str:
    """Return a hint about memory with a decimal suffix that no cluster has; "" without one.

    The API server writes 16000000000 as `16G`, so the author may mean a number, which is enforced.
    """
    unit = managed[1]
    if not unit or not isinstance(value, str) or not value.endswith(_VAST):
        return ""
    try:
        number = quantities.parse_integer(value)
    except QuantityError:
        return ""  # another warning covers it
    return (
        f"{shown(value)} is {number}, and {_unit(managed)} are counted; for {shown(value)} of"
        f" bytes, write {quantities.parse_units(value, unit * quantities.MEBIBYTE)}"
    )

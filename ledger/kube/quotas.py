"""ResourceQuotas: which limits a quota object sets, in the units of the ledger.

Kubernetes accepts `limits.nvidia.com/gpumem` and similar keys, shows them as used 0 and enforces
nothing; these keys are ours. Whatever is odd about a key becomes a warning that says what to
write instead, and never keeps the other keys from holding.
"""

from typing import Final

import msgspec

from ledger.core.amounts import AMOUNT_MAX
from ledger.kube import quantities
from ledger.kube.objects import ResourceQuota
from ledger.kube.quantities import BinarySuffix, Fraction, QuantityError, TooLarge
from ledger.kube.rules import DemandRules

PREFIXES: Final = ("limits.", "requests.")
_SHOWN_MAX: Final = 64


class Limits(msgspec.Struct, frozen=True):
    """What a quota limits, by quota key; `warnings` are sentences for whoever wrote it."""

    limits: dict[str, int]
    warnings: tuple[str, ...] = ()


def limits_of(
    quota: ResourceQuota, rules: DemandRules, *, zero_is_unlimited: bool = False
) -> Limits:
    """Return the limits of the managed resources that a quota sets.

    An explicit 0 is a limit of nothing, unless `zero_is_unlimited` asks for HAMi's older reading.
    A quota with scopes limits nothing here: it counts only some pods, and to count all of them
    would refuse what it allows.
    """
    hard = quota.spec.hard or {}
    managed = _keys(rules)
    if quota.spec.scopes or quota.spec.scope_selector is not None:
        if managed.keys() & hard.keys():
            return Limits({}, ("scoped quotas are not enforced yet: this one limits nothing",))
        return Limits({})
    limits: dict[str, int] = {}
    warnings = [text for key in sorted(hard) if (text := _lint(key, managed, rules))]
    for key in sorted(managed.keys() & hard.keys()):
        try:
            limit, warning = _limit(hard[key], managed[key], rules)
        except QuantityError as error:
            warnings.append(f"{key}: {_shown(hard[key])} {error}: this key limits nothing")
            continue
        if warning:
            warnings.append(f"{key}: {warning}")
        if limit or not zero_is_unlimited:
            limits[key] = limit
    return Limits(limits, tuple(warnings))


def _keys(rules: DemandRules) -> dict[str, str]:
    """Return the resource behind every quota key that is managed."""
    keys: dict[str, str] = {}
    for resource in (rules.count, rules.memory, rules.cores, *rules.managed):
        keys.update({prefix + resource: resource for prefix in PREFIXES})
        if "/" not in resource:
            keys[resource] = resource  # the bare name of a native resource means its requests
    return keys


def _limit(value: str | int, resource: str, rules: DemandRules) -> tuple[int, str]:
    """Return a limit in the ledger's unit and a warning or nothing. Raises QuantityError."""
    if resource == "cpu":
        return quantities.parse_milli(value), ""
    if "/" not in resource:
        return quantities.parse_scaled(value), ""
    warning = ""
    try:
        limit = quantities.parse_integer(value)
    except Fraction:
        limit = quantities.parse_scaled(value) - 1  # parse_scaled rounds up
        warning = f"{_shown(value)} is not a whole number and holds as {limit}"
    except BinarySuffix:
        limit = quantities.parse_scaled(value)
        warning = f"{_shown(value)} counts no bytes here and means {limit}; write a plain number"
    if resource == rules.memory:
        limit *= rules.memory_factor
    if limit > AMOUNT_MAX:
        raise TooLarge("is beyond 2^53")
    return limit, warning


def _lint(key: str, managed: dict[str, str], rules: DemandRules) -> str:
    """Return what to tell somebody who expects something of a key that nobody enforces."""
    if key in managed:
        return ""
    prefix = next((one for one in PREFIXES if key.startswith(one)), "")
    resource = key[len(prefix) :]
    if resource == rules.percentage:
        return f"{key}: percentages of cards cannot be added up; limit {rules.memory} instead"
    if not prefix and f"limits.{key}" in managed:
        return f"{key}: nobody enforces this key; write limits.{key}"
    if prefix == "limits." and "/" in resource:
        return f"{key}: Kubernetes does not enforce this key and it is not a managed resource"
    return ""


def _shown(value: str | int) -> str:
    return str(value)[:_SHOWN_MAX]

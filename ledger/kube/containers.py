"""What one container asks for, with the defaults for what it leaves out.

HAMi's words mean here what they mean there: memory and cores are **per card**, memory wins over a
percentage, a count alone is the whole card. What HAMi would clamp or ignore is refused instead.
"""

from typing import Final

import msgspec

from ledger.core.amounts import Amounts
from ledger.core.denials import Reason
from ledger.kube import quantities
from ledger.kube.objects import Container, Quantities, Resources
from ledger.kube.quantities import BinarySuffix, Fraction, NotAQuantity, QuantityError
from ledger.kube.rules import DemandRules

WHOLE: Final = 100
"""All of a card, in percent of its memory or of its cores."""

_MEBIBYTE: Final = 1 << 20
_SHOWN_MAX: Final = 64
_NO_RESOURCES: Final = Resources()


class Refusal(Exception):
    """A container's request cannot be understood: which resource, its value, why and what to do."""

    def __init__(
        self, reason: Reason, resource: str, value: str | int, why: str, remedy: str
    ) -> None:
        super().__init__(f"{resource} is {value}, which {why}")
        self.reason = reason
        self.resource = resource
        self.value = shown(value)
        self.why = why
        self.remedy = remedy


class CardRequest(msgspec.Struct, frozen=True, gc=False):
    """Cards a container asks for; `memory` in MiB and `cores` in percent are per card.

    `memory` is None for a share of a card whose size is not known. `count_given` and
    `cores_given` say whether the container named them or a default stands in.
    """

    count: int
    memory: int | None
    cores: int
    count_given: bool
    cores_given: bool


def asks_for_cards(container: Container, rules: DemandRules) -> bool:
    """Return whether a container names any of the vendor's resources, understandable or not."""
    resources = container.resources
    if resources is None:
        return False
    for given in (resources.limits, resources.requests):
        if given and not rules.of_cards().isdisjoint(given):
            return True
    return False


def cards_of(container: Container, rules: DemandRules) -> CardRequest | None:
    """Return the cards a container asks for, None when it asks for none. Raises Refusal."""
    if not asks_for_cards(container, rules):
        return None
    resources = container.resources or _NO_RESOURCES
    count = _count(resources, rules)
    memory = _memory(resources, rules)
    percentage = _percentage(resources, rules)
    cores = _cores(resources, rules)
    if not (memory or percentage or cores):
        if not count:
            return None
    elif count == 0 or (count is None and not rules.default_count):
        raise _no_cards(rules, count)
    exclusive = not memory and percentage in (None, WHOLE)
    return CardRequest(
        count=rules.default_count if count is None else count,
        memory=memory or _share(percentage, rules),
        cores=_default_cores(exclusive, rules) if cores is None else cores,
        count_given=count is not None,
        cores_given=cores is not None,
    )


def managed_of(resources: Resources | None, rules: DemandRules) -> Amounts:
    """Return what is asked of the further managed resources, by limit key.

    An extended resource has one amount. A native one such as `cpu` has different requests and
    limits, hence two; its bare name means its requests, as in a ResourceQuota. Cards are not
    among them: `cards_of` reads those. Raises Refusal.
    """
    found: Amounts = {}
    if resources is None:
        return found
    for name in rules.managed:
        if name in rules.of_cards():
            continue
        limit = _first(name, resources.limits)
        request = _first(name, resources.requests, resources.limits)
        if "/" in name:
            amount = request if limit is None else limit
            if amount is not None:
                found[name] = _integer(name, amount, Reason.INVALID_QUANTITY, "whole units")
            continue
        if limit is not None:
            found[f"limits.{name}"] = _native(name, limit)
        if request is not None:
            found[f"requests.{name}"] = found[name] = _native(name, request)
    return found


def shown(value: str | int) -> str:
    """Return a value as it is quoted in messages, cut when it is absurdly long."""
    text = str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _first(name: str, *given: Quantities | None) -> str | int | None:
    for where in given:
        if where and name in where:
            return where[name]
    return None


def _count(resources: Resources, rules: DemandRules) -> int | None:
    value = _first(rules.count, resources.limits, resources.requests)
    if value is None:
        return None
    return _integer(rules.count, value, Reason.INVALID_COUNT, "cards")


def _memory(resources: Resources, rules: DemandRules) -> int:
    """Return MiB per card; 0, as in HAMi, is the same as not given."""
    value = _first(rules.memory, resources.limits, resources.requests)
    if value is None:
        return 0
    unit = "MiB" if rules.memory_factor == 1 else f"{rules.memory_factor} MiB"
    return _integer(rules.memory, value, Reason.INVALID_QUANTITY, unit) * rules.memory_factor


def _percentage(resources: Resources, rules: DemandRules) -> int | None:
    value = _first(rules.percentage, resources.limits, resources.requests)
    if value is None:
        return None
    return _percent(rules.percentage, value, 1, Reason.INVALID_PERCENTAGE)


def _cores(resources: Resources, rules: DemandRules) -> int | None:
    value = _first(rules.cores, resources.limits, resources.requests)
    if value is None:
        return None
    return _percent(rules.cores, value, 0, Reason.INVALID_CORES)


def _percent(name: str, value: str | int, least: int, reason: Reason) -> int:
    """Return a percentage from `least` to 100. Raises Refusal."""
    remedy = f"{name} is a percentage of one card: write a whole number from {least} to {WHOLE}"
    try:
        percent = quantities.parse_integer(value)
    except (NotAQuantity, BinarySuffix, Fraction) as error:
        raise Refusal(Reason.INVALID_QUANTITY, name, value, str(error), remedy) from error
    except QuantityError as error:
        raise Refusal(reason, name, value, str(error), remedy) from error
    if not least <= percent <= WHOLE:
        raise Refusal(reason, name, value, f"is outside {least} to {WHOLE}", remedy)
    return percent


def _integer(name: str, value: str | int, reason: Reason, unit: str) -> int:
    """Return a whole number of `unit`. Raises Refusal."""
    try:
        return quantities.parse_integer(value)
    except BinarySuffix as error:
        remedy = _instead_of_bytes(name, value, unit)
        raise Refusal(reason, name, value, str(error), remedy) from error
    except QuantityError as error:
        remedy = f"{name} counts {unit}: write a whole number without a fraction or a sign"
        raise Refusal(reason, name, value, str(error), remedy) from error


def _instead_of_bytes(name: str, value: str | int, unit: str) -> str:
    """Tell how to write what somebody meant who wrote bytes."""
    if unit != "MiB":
        return f"{name} counts {unit}: write a plain whole number"
    try:
        mebibytes = -(-quantities.parse_scaled(value) // _MEBIBYTE)
    except QuantityError:
        return f"{name} counts MiB: write a plain whole number"
    return f"{name} counts MiB: write {mebibytes} for {shown(value)}"


def _native(name: str, value: str | int) -> int:
    """Return thousandths of a processor, or bytes of anything else. Raises Refusal."""
    try:
        if name == "cpu":
            return quantities.parse_milli(value)
        return quantities.parse_scaled(value)
    except QuantityError as error:
        remedy = f"Write {name} as Kubernetes does, for example 500m processors or 2Gi of memory"
        raise Refusal(Reason.INVALID_QUANTITY, name, value, str(error), remedy) from error


def _no_cards(rules: DemandRules, count: int | None) -> Refusal:
    return Refusal(
        Reason.INVALID_COUNT,
        rules.count,
        "not given" if count is None else count,
        "is no card to take the requested memory or cores from",
        f"Ask for at least one {rules.count}, or for no share of a card",
    )


def _share(percentage: int | None, rules: DemandRules) -> int | None:
    """Return the MiB of a card that is asked for without naming them, held at the worst card."""
    if percentage is None and rules.default_memory:
        return rules.default_memory
    if rules.worst_card_memory is None:
        return None
    return -(-rules.worst_card_memory * (percentage or WHOLE) // WHOLE)


def _default_cores(exclusive: bool, rules: DemandRules) -> int:
    """Whoever takes all memory of a card leaves nothing to run on its cores with."""
    return WHOLE if exclusive else rules.default_cores

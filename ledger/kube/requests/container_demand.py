"""Container demand: the cards and amounts that one container requests, with defaults.

HAMi's resources keep their meaning: memory and cores are **per card**, memory overrides a
percentage, and a count alone requests whole cards. Of a card that is divided into pieces of fixed
sizes, the smallest piece that holds the requested memory counts. Values that HAMi clamps or ignores
are refused.
"""

from collections.abc import Iterable

import msgspec

from ledger.core.model.amounts import Amounts, most_of
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Container, Quantities, Resources
from ledger.kube.api.quoting import shown
from ledger.kube.requests import quantities
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import (
    BinarySuffix,
    Fraction,
    NotAQuantity,
    QuantityError,
    TooLarge,
    TooLong,
)
from ledger.kube.vendors.vendors import WHOLE, Vendor


class InvalidRequest(Exception):
    """A container's request is invalid: its resource, value, cause and remedy."""

    def __init__(
        self, reason: Reason, resource: str, *, value: str | int, why: str, remedy: str
    ) -> None:
        super().__init__(f"{resource} is {value}, which {why}")
        self.reason = reason
        self.resource = resource
        self.value = shown(value)
        self.why = why
        self.remedy = remedy

    def denial(self, field: str, who: str) -> Denial:
        """Return the denial of the object whose `field` holds the request of `who`."""
        return Denial(
            self.reason,
            f"{self.resource} of {shown(who)} is {self.value}, which {self.why}",
            transient=False,
            remedy=self.remedy,
            field=f"{field}[{self.resource}]",
            value=self.value,
        )


class CardRequest(msgspec.Struct, frozen=True, gc=False):
    """Cards of one vendor that a container requests.

    `memory` in MiB and `cores` in the vendor's unit are per card. `memory` is None for a share of
    a card of unknown size. `percentage` is the requested share of each card's memory, 0 if the
    container requests MiB. `assumed` is true if `memory` depends on the sizes of the current
    cards. `count_given` and `cores_given` are false if the value is a default.
    """

    vendor: Vendor
    count: int
    memory: int | None
    percentage: int
    cores: int
    count_given: bool
    cores_given: bool
    assumed: bool = False

    @property
    def exclusive(self) -> bool:
        """Whether the container requests all of each card, so that it is the only user."""
        vendor = self.vendor
        if vendor.cores and vendor.whole_cores:
            return self.cores >= vendor.whole_cores
        return self.percentage == WHOLE


def names_cards(container: Container, rules: DemandRules) -> bool:
    """Return whether a container names any of the vendors' resources, validly or not."""
    resources = container.resources
    return resources is not None and _names_any(resources, rules.of_cards)


def needs_cards(container: Container, rules: DemandRules) -> bool:
    """Return whether a container requests at least one card; True for an invalid request."""
    try:
        return bool(cards_of(container, rules))
    except InvalidRequest:
        return True


def cards_of(container: Container, rules: DemandRules, card_memory: int = 0) -> list[CardRequest]:
    """Return the cards that a container requests, by vendor. Raises InvalidRequest.

    `card_memory` is the MiB of the card type that the container will run on, 0 if unknown.
    """
    resources = container.resources
    if resources is None or not _names_any(resources, rules.of_cards):
        return []
    if len(rules.vendors) == 1:
        asked = _asked(resources, rules.vendors[0], rules, card_memory)
        return [] if asked is None else [asked]
    requests = (
        _asked(resources, vendor, rules, card_memory) for vendor in _vendors_in(resources, rules)
    )
    return [asked for asked in requests if asked is not None]


def managed_of(resources: Resources | None, rules: DemandRules) -> Amounts:
    """Return the requested amounts of the managed resources other than cards, by limit key.

    An extended resource has one amount. A native resource such as `cpu` has two amounts, because
    its requests and limits differ. Its bare name means its requests, as in a ResourceQuota.
    `cards_of` reads the cards. Raises InvalidRequest.
    """
    amounts: Amounts = {}
    if resources is None:
        return amounts
    for name in rules.besides:
        limit = _first(name, resources.limits)
        request = _first(name, resources.requests, resources.limits)
        if "/" in name:
            amount = request if limit is None else limit
            if amount is not None:
                amounts[name] = _integer(name, amount, Reason.INVALID_QUANTITY, "whole units")
            continue
        if limit is not None:
            amounts[f"limits.{name}"] = _native(name, limit)
        if request is not None:
            amounts[f"requests.{name}"] = amounts[name] = _native(name, request)
    return amounts


def _first(name: str, *given: Quantities | None) -> str | int | None:
    for where in given:
        if where and name in where:
            return where[name]
    return None


def _names_any(resources: Resources, names: frozenset[str]) -> bool:
    limits, requests = resources.limits, resources.requests
    return bool(limits and not names.isdisjoint(limits)) or bool(
        requests and not names.isdisjoint(requests)
    )


def _vendors_in(resources: Resources, rules: DemandRules) -> Iterable[Vendor]:
    """Return the vendors whose resources are named, each once."""
    vendors: dict[str, Vendor] = {}
    for given in (resources.limits, resources.requests):
        for name in given or ():
            vendor = rules.vendor_of.get(name)
            if vendor is not None:
                vendors[vendor.name] = vendor
    return vendors.values()


def _asked(
    resources: Resources, vendor: Vendor, rules: DemandRules, card_memory: int
) -> CardRequest | None:
    """Return the request for one vendor's cards, None if it is zero. Raises InvalidRequest."""
    count = _count(resources, vendor)
    memory = _memory(resources, vendor)
    percentage = _percentage(resources, vendor)
    cores = _cores(resources, vendor)
    if not (memory or percentage or cores):
        if not count:
            return None
    elif count == 0 or (count is None and not vendor.default_count):
        raise _no_cards(vendor, count)
    if vendor.several_whole and count is not None and count > 1:
        memory, percentage, cores = 0, WHOLE, vendor.whole_cores
    whole = not memory and percentage in (None, WHOLE)
    if percentage is None:
        memory = memory or vendor.default_memory
    share = 0 if memory else percentage or WHOLE
    known = card_memory or vendor.card_memory or rules.worst_card_memory
    largest = known if known is not None else rules.largest.get(vendor.name)
    return CardRequest(
        vendor=vendor,
        count=vendor.default_count if count is None else count,
        memory=memory or _share(share, largest),
        percentage=share,
        cores=_default_cores(whole, vendor) if cores is None else cores,
        count_given=count is not None,
        cores_given=cores is not None,
        assumed=bool(share) and known is None and largest is not None,
    )


def _count(resources: Resources, vendor: Vendor) -> int | None:
    value = _first(vendor.count, resources.limits, resources.requests)
    if value is None:
        return None
    return _integer(vendor.count, value, Reason.INVALID_COUNT, "cards")


def _memory(resources: Resources, vendor: Vendor) -> int:
    """Return MiB per card. As in HAMi, 0 means that the memory is not given."""
    value = _first(vendor.memory, resources.limits, resources.requests)
    if value is None:
        return 0
    unit = "MiB" if vendor.memory_factor == 1 else f"{vendor.memory_factor} MiB"
    asked = _integer(vendor.memory, value, Reason.INVALID_QUANTITY, unit) * vendor.memory_factor
    return _memory_step(asked, vendor) if vendor.memory_steps and asked else asked


def _memory_step(asked: int, vendor: Vendor) -> int:
    """Return the smallest memory step of a card that holds the requested MiB."""
    pieces = (*vendor.memory_steps, vendor.card_memory)
    return next((piece for piece in pieces if piece >= asked), asked)


def _percentage(resources: Resources, vendor: Vendor) -> int | None:
    value = _first(vendor.percentage, resources.limits, resources.requests)
    if value is None:
        return None
    return _percent(vendor.percentage, value, 1, Reason.INVALID_PERCENTAGE)


def _cores(resources: Resources, vendor: Vendor) -> int | None:
    value = _first(vendor.cores, resources.limits, resources.requests)
    if value is None:
        return None
    if vendor.whole_cores == WHOLE:
        return _percent(vendor.cores, value, 0, Reason.INVALID_CORES)
    cores = _integer(vendor.cores, value, Reason.INVALID_CORES, "cores of a card")
    if 0 < vendor.whole_cores < cores:
        raise InvalidRequest(
            Reason.INVALID_CORES,
            vendor.cores,
            value=value,
            why=f"is more than the {vendor.whole_cores} that a card has",
            remedy=f"Write a whole number from 0 to {vendor.whole_cores}: it is per card",
        )
    return cores


def _percent(name: str, value: str | int, least: int, reason: Reason) -> int:
    """Return a percentage from `least` to 100. Raises InvalidRequest."""
    remedy = f"{name} is a percentage of one card: write a whole number from {least} to {WHOLE}"
    try:
        percent = quantities.parse_integer(value)
    except (NotAQuantity, BinarySuffix, Fraction) as error:
        raise InvalidRequest(
            Reason.INVALID_QUANTITY, name, value=value, why=str(error), remedy=remedy
        ) from error
    except QuantityError as error:
        raise InvalidRequest(reason, name, value=value, why=str(error), remedy=remedy) from error
    if not least <= percent <= WHOLE:
        raise InvalidRequest(
            reason, name, value=value, why=f"is outside {least} to {WHOLE}", remedy=remedy
        )
    return percent


def _integer(name: str, value: str | int, reason: Reason, unit: str) -> int:
    """Return a whole number of `unit`. Raises InvalidRequest."""
    try:
        return quantities.parse_integer(value)
    except BinarySuffix as error:
        remedy = _instead_of_bytes(name, value, unit)
        raise InvalidRequest(reason, name, value=value, why=str(error), remedy=remedy) from error
    except (TooLarge, TooLong) as error:
        remedy = f"{name} counts {unit}: write {most_of(name)} at most"
        raise InvalidRequest(reason, name, value=value, why=str(error), remedy=remedy) from error
    except QuantityError as error:
        remedy = f"{name} counts {unit}: write a whole number without a fraction or a sign"
        raise InvalidRequest(reason, name, value=value, why=str(error), remedy=remedy) from error


def _instead_of_bytes(name: str, value: str | int, unit: str) -> str:
    """Return the remedy for a value in bytes: the plain number to write."""
    if unit != "MiB":
        return f"{name} counts {unit}: write a plain whole number"
    try:
        mebibytes = quantities.parse_units(value, quantities.MEBIBYTE)
    except QuantityError:
        return f"{name} counts MiB: write a plain whole number"
    return f"{name} counts MiB: write {mebibytes} for {shown(value)}"


def _native(name: str, value: str | int) -> int:
    """Return thousandths of a processor, or bytes of another resource. Raises InvalidRequest."""
    try:
        if name == "cpu":
            return quantities.parse_milli(value)
        return quantities.parse_scaled(value)
    except QuantityError as error:
        remedy = f"Write {name} as Kubernetes does, for example 500m processors or 2Gi of memory"
        raise InvalidRequest(
            Reason.INVALID_QUANTITY, name, value=value, why=str(error), remedy=remedy
        ) from error


def _no_cards(vendor: Vendor, count: int | None) -> InvalidRequest:
    return InvalidRequest(
        Reason.INVALID_COUNT,
        vendor.count,
        value="not given" if count is None else count,
        why="leaves no card to take the requested memory or cores from",
        remedy=f"Ask for at least one {vendor.count}, or for no share of a card",
    )


def _share(percentage: int, largest: int | None) -> int | None:
    """Return the MiB of a share of the largest possible card, None if its size is unknown."""
    return -(-largest * percentage // WHOLE) if largest is not None else None


def _default_cores(whole: bool, vendor: Vendor) -> int:
    """Return all cores for a whole card, because no memory is left for another user."""
    return vendor.whole_cores if whole and vendor.whole_cores else vendor.default_cores

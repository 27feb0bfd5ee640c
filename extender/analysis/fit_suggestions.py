"""Relaxations: the smallest changes of a device request with which a pod fits somewhere.

One thing is changed at a time. The largest amount that fits is searched by bisection. A smaller
amount nearly always fits, too, but may lead to other cards, so each answer has been tried.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import structs

from extender.inventory.card_arrays import Booleans
from ledger.kube.requests.device_requests import DeviceRequest, DeviceSelector, PodDeviceRequest

Fitting = Callable[[PodDeviceRequest], Booleans]
"""Returns the nodes on which a request fits."""


class Relaxation(msgspec.Struct, frozen=True):
    """A change of a request, and the request with it; `now` and `then` are amounts or 0.

    `memory` is MiB, `percentage` percent of the memory and `cores` percent of each card, `cards`
    how many of them a container has; of a whole card, `percentage` is about its cores as well.
    `types` and `uuids` mean that any card would do, `numa` that cards need not be on one NUMA node,
    and `unused` that they need not be unused.
    """

    what: str
    now: int
    then: int
    request: PodDeviceRequest


class _Amount(msgspec.Struct, frozen=True):
    """An amount of a request that can be lower, down to `least`."""

    what: str
    least: int
    of: Callable[[DeviceRequest], int]
    capped: Callable[[DeviceRequest, int], DeviceRequest]


def relaxations_of(request: PodDeviceRequest, fitting: Fitting) -> Iterator[Relaxation]:
    """Yield each single change with which a pod fits that fits nowhere, with the largest amount."""
    for amount in _AMOUNTS:
        found = _largest(request, amount, fitting)
        if found is not None:
            yield found
    for what, change in _CONDITIONS.items():
        other = change(request)
        if other != request and fitting(other).any():
            yield Relaxation(what, 0, 0, other)


def _largest(request: PodDeviceRequest, amount: _Amount, fitting: Fitting) -> Relaxation | None:
    """Return the largest amount with which the pod fits; None when the least is too much."""
    now = max((amount.of(card) for one in request.wishes for card in one.cards), default=0)
    low, high = amount.least, now - 1
    if high < low or not fitting(_capped(request, amount, low)).any():
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fitting(_capped(request, amount, middle)).any():
            low = middle
        else:
            high = middle - 1
    return Relaxation(amount.what, now, low, _capped(request, amount, low))


def _capped(request: PodDeviceRequest, amount: _Amount, most: int) -> PodDeviceRequest:
    return _each(request, lambda card: amount.capped(card, most))


def _each(
    request: PodDeviceRequest, change: Callable[[DeviceRequest], DeviceRequest]
) -> PodDeviceRequest:
    wishes = tuple(
        structs.replace(one, cards=tuple(change(card) for card in one.cards))
        for one in request.wishes
    )
    return structs.replace(request, wishes=wishes)


def _less_memory(card: DeviceRequest, most: int) -> DeviceRequest:
    return structs.replace(card, memory=min(card.memory, most))


def _less_percentage(card: DeviceRequest, most: int) -> DeviceRequest:
    """Ask for a smaller part of each card; of a whole one, for that part of its cores as well."""
    if card.percentage <= most:
        return card
    cores = min(card.cores, most) if card.exclusive else card.cores
    return structs.replace(card, percentage=most, cores=cores, exclusive=False)


def _fewer_cores(card: DeviceRequest, most: int) -> DeviceRequest:
    """Ask for fewer cores of each card, which then may bear others."""
    if card.cores <= most:
        return card
    return structs.replace(card, cores=most, exclusive=False)


def _fewer_cards(card: DeviceRequest, most: int) -> DeviceRequest:
    return structs.replace(card, count=min(card.count, most))


def _of_choice(
    request: PodDeviceRequest, change: Callable[[DeviceSelector], DeviceSelector]
) -> PodDeviceRequest:
    return _each(request, lambda card: structs.replace(card, choice=change(card.choice)))


def _any_type(request: PodDeviceRequest) -> PodDeviceRequest:
    return _of_choice(
        request, lambda one: structs.replace(one, use_types=(), nouse_types=(), mode="")
    )


def _any_uuid(request: PodDeviceRequest) -> PodDeviceRequest:
    return _of_choice(request, lambda one: structs.replace(one, use_uuids=(), nouse_uuids=()))


def _any_numa(request: PodDeviceRequest) -> PodDeviceRequest:
    return structs.replace(request, numa_bind=False)


def _also_used(request: PodDeviceRequest) -> PodDeviceRequest:
    """Take cards that others use, too, by another policy than `mutex`."""
    if "mutex" not in request.card_policies:
        return request
    left = tuple(word for word in request.card_policies if word != "mutex")
    return structs.replace(request, card_policies=left or ("spread",))


_AMOUNTS: Final = (
    _Amount("memory", 1, lambda card: card.memory, _less_memory),
    _Amount("percentage", 1, lambda card: card.percentage, _less_percentage),
    _Amount("cores", 0, lambda card: card.cores, _fewer_cores),
    _Amount("cards", 1, lambda card: card.count, _fewer_cards),
)

_CONDITIONS: Final[dict[str, Callable[[PodDeviceRequest], PodDeviceRequest]]] = {
    "types": _any_type,
    "uuids": _any_uuid,
    "numa": _any_numa,
    "unused": _also_used,
}

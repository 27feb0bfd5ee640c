"""Fit suggestions: what would let a pod fit that fits on no node.

Either the fewest pods to evict from one node, or a single change of the device request.

Eviction: on each node a single pod that suffices is searched first. Then pods leave one by one, the
smallest first, and those that are not needed stay. So every pod of the answer is needed, but
another answer may have fewer pods. Priorities and disruption budgets are ignored, because they are
not in the ledger.

Change: one thing is changed at a time. The largest amount that fits is searched by bisection. A
smaller amount nearly always fits, too, but may lead to other cards, so each answer has been tried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import structs

from extender.analysis.fit_after_eviction import fits_after
from extender.fit.inventory_fit import InventoryFit
from extender.inventory.card_arrays import Booleans
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.model.cards import Placement
from ledger.core.model.qualified_names import local_name
from ledger.kube.requests.device_requests import DeviceRequest, DeviceSelector, PodDeviceRequest

NODES_NAMED_MAX: Final = 5
"""Nodes that a suggestion names."""

TRIED_MAX: Final = 256
"""Most pods of one node that are tried."""

EVICT: Final = "evict"
"""The kind of a suggestion to evict pods."""

Residents = Mapping[tuple[str, str], Placement]
"""The pods of one node, by namespace and key."""

Fitting = Callable[[PodDeviceRequest], Booleans]
"""Returns the nodes on which a request fits."""


class FitSuggestion(msgspec.Struct, frozen=True):
    """One change with which the pod would fit on `count` nodes, of which `nodes` are the first.

    `what` is memory (MiB), percentage, cores, cards, types, uuids, numa, unused or evict; `now` and
    `then` are 0 where the change is not one of an amount.
    """

    what: str
    now: int
    then: int
    nodes: list[str]
    text: str
    count: int = 1


class EvictedPod(msgspec.Struct, frozen=True):
    """A pod that would leave, and how many MiB of the node's cards it has."""

    namespace: str
    pod: str
    memory: int


class _Relaxation(msgspec.Struct, frozen=True):
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


def fewest_evictions(
    evictions: Mapping[str, Sequence[EvictedPod]],
) -> FitSuggestion | None:
    """Return the eviction of the fewest pods, and of these of the least memory.

    `evictions` are the pods of each node that leave enough room, empty where none do. Returns None
    if no node has such pods.
    """
    helpful = [node for node, pods in evictions.items() if pods]
    if not helpful:
        return None
    best = min(
        helpful,
        key=lambda node: (
            len(evictions[node]),
            sum(victim.memory for victim in evictions[node]),
            node,
        ),
    )
    pods = ", ".join(
        f"{victim.namespace}/{victim.pod} ({victim.memory} MiB)" for victim in evictions[best]
    )
    return FitSuggestion(EVICT, 0, 0, [best], f"evict {pods} from {best}")


def evictions_on(
    fit: InventoryFit, request: SchedulingRequest, node: str, there: Residents
) -> list[EvictedPod]:
    """Return pods of a node that leave enough room for another one; empty if none suffice."""
    pods = [place for place in there if place[1].startswith(PODS)]  # a claim cannot be evicted
    ordered = sorted(pods, key=lambda place: (_memory(there[place]), place))[:TRIED_MAX]
    return [
        EvictedPod(local_name(namespace), key.partition("/")[2], _memory(there[namespace, key]))
        for namespace, key in _leaving(fit, request, node, there, ordered)
    ]


def _leaving(
    fit: InventoryFit,
    request: SchedulingRequest,
    node: str,
    there: Residents,
    ordered: Sequence[tuple[str, str]],
) -> list[tuple[str, str]]:
    def suffice(places: Sequence[tuple[str, str]]) -> bool:
        return fits_after(fit, request, node, [there[place] for place in places])

    if not suffice(ordered):
        return []
    for place in ordered:
        if suffice([place]):
            return [place]
    leaving: list[tuple[str, str]] = []
    for place in ordered:
        leaving.append(place)
        if suffice(leaving):
            break
    for place in reversed(leaving[:-1]):
        without = [other for other in leaving if other != place]
        if suffice(without):
            leaving = without
    return leaving


def _memory(placed: Placement) -> int:
    return sum(booking.memory for booking in bookings_of(placed).values())


def single_changes(
    request: PodDeviceRequest, fitting: Fitting, nodes: Sequence[str]
) -> Iterator[FitSuggestion]:
    """Yield each single change of a request that fits nowhere, with the largest amount that fits.

    `nodes` are the names of the nodes for which `fitting` answers, in its order.
    """
    for relaxation in _relaxations(request, fitting):
        places = fitting(relaxation.request).nonzero()[0].tolist()
        named = [nodes[place] for place in places[:NODES_NAMED_MAX]]
        change = _WORDS[relaxation.what].format(now=relaxation.now, then=relaxation.then)
        text = f"{change}: it would fit on {', '.join(named)}"
        more = len(places) - len(named)
        yield FitSuggestion(
            relaxation.what,
            relaxation.now,
            relaxation.then,
            named,
            f"{text} and {more} more" if more else text,
            len(places),
        )


def counted(change: FitSuggestion) -> str:
    """Return the text of a single change with the number of nodes instead of their names."""
    words = _WORDS[change.what].format(now=change.now, then=change.then)
    return f"{words}: it would fit on {change.count} {'node' if change.count == 1 else 'nodes'}"


def _relaxations(request: PodDeviceRequest, fitting: Fitting) -> Iterator[_Relaxation]:
    for amount in _AMOUNTS:
        relaxation = _largest(request, amount, fitting)
        if relaxation is not None:
            yield relaxation
    for what, change in _CONDITIONS.items():
        other = change(request)
        if other != request and fitting(other).any():
            yield _Relaxation(what, 0, 0, other)


def _largest(request: PodDeviceRequest, amount: _Amount, fitting: Fitting) -> _Relaxation | None:
    """Return the largest amount with which the pod fits; None when the least is too much."""
    now = max(
        (amount.of(card) for container in request.containers for card in container.cards), default=0
    )
    low, high = amount.least, now - 1
    if high < low or not fitting(_capped(request, amount, low)).any():
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fitting(_capped(request, amount, middle)).any():
            low = middle
        else:
            high = middle - 1
    return _Relaxation(amount.what, now, low, _capped(request, amount, low))


def _capped(request: PodDeviceRequest, amount: _Amount, most: int) -> PodDeviceRequest:
    return _each(request, lambda card: amount.capped(card, most))


def _each(
    request: PodDeviceRequest, change: Callable[[DeviceRequest], DeviceRequest]
) -> PodDeviceRequest:
    containers = tuple(
        structs.replace(container, cards=tuple(change(card) for card in container.cards))
        for container in request.containers
    )
    return structs.replace(request, containers=containers)


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
        request, lambda choice: structs.replace(choice, use_types=(), nouse_types=(), mode="")
    )


def _any_uuid(request: PodDeviceRequest) -> PodDeviceRequest:
    return _of_choice(request, lambda choice: structs.replace(choice, use_uuids=(), nouse_uuids=()))


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

_WORDS: Final = {
    "memory": "ask for at most {then} MiB of each card instead of {now}",
    "percentage": "ask for at most {then} % of each card instead of {now} %",
    "cores": "ask for at most {then} % of the cores of each card instead of {now} %",
    "cards": "ask for at most {then} cards in a container instead of {now}",
    "types": "accept cards of any type",
    "uuids": "accept cards of any uuid",
    "numa": "do not request cards of one NUMA node",
    "unused": "do not request unused cards",
}

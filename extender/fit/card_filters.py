"""Card filters: why a card cannot be given to a container, for all cards at once.

Each filter is a rule with a code. The filters are the rules by which the ledger decides, so that it
accepts the proposed cards. One more rule is the extender's own: cards in ResourceSlices are left to
kube-scheduler.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from extender.fit import mig_instance_choice
from extender.fit.card_window import CardLoads, CardWindow
from extender.fit.mig_instance_choice import InstanceChoice
from extender.inventory.card_arrays import Booleans, Integers
from ledger.core.decide.cards.card_checks import SHARES_MAX
from ledger.core.model.cards import MIG
from ledger.core.model.denials import Reason
from ledger.kube.requests.device_requests import DeviceRequest, DeviceSelector

Codes = npt.NDArray[np.int8]
"""For each card the code of the rule it breaks (`REASONS`), `FITS` or `ABSENT`."""

FITS: Final = 0
ABSENT: Final = 127
"""There is no card in this column."""

TAKEN: Final = 1
"""The container has the card already, and wants more."""
_NO_INSTANCE: Final = 2
_NOT_SHARED: Final = 3
_NO_CORES_LEFT: Final = 4
_SHARED: Final = 5
_CORES: Final = 6
_MEMORY: Final = 7
_QUOTA: Final = 8
_IN_USE: Final = 9
_SLOTS: Final = 10
_UUID: Final = 11
NUMA: Final = 12
"""The card is not on the NUMA node where the others are."""
_KIND: Final = 13
_CORDONED: Final = 14
_ILL: Final = 15
_OFFERED: Final = 16
"""kube-scheduler allocates the card for resource claims: the extender never gives it."""

REASONS: Final = {
    TAKEN: Reason.ALLOCATED_INSUFFICIENT,
    _NO_INSTANCE: Reason.CARD_MIG_INFEASIBLE,
    _NOT_SHARED: Reason.EXCLUSIVE_CONFLICT,
    _NO_CORES_LEFT: Reason.CARD_COMPUTE_UNITS_EXHAUSTED,
    _SHARED: Reason.EXCLUSIVE_CONFLICT,
    _CORES: Reason.CARD_INSUFFICIENT_CORE,
    _MEMORY: Reason.CARD_INSUFFICIENT_MEMORY,
    _QUOTA: Reason.RESOURCE_QUOTA_NOT_FIT,
    _IN_USE: Reason.EXCLUSIVE_CONFLICT,
    _SLOTS: Reason.CARD_TIME_SLICING_EXHAUSTED,
    _UUID: Reason.CARD_UUID_MISMATCH,
    NUMA: Reason.NUMA_NOT_FIT,
    _KIND: Reason.CARD_TYPE_MISMATCH,
    _CORDONED: Reason.CARD_CORDONED,
    _ILL: Reason.CARD_NOT_HEALTHY,
    _OFFERED: Reason.CARD_OFFERED_BY_DRA,
}
"""By code. Of several broken rules, the one with the highest code names the reason.

This is HAMi's order: a request for a whole card is refused for the memory that is not free first.
"""

_NEVER: Final = np.zeros((1, 1), np.bool_)
"""No card breaks the rule."""


class CardAmounts(NamedTuple):
    """The amounts a container would take of each card: MiB, percent, and an instance of a cut card.

    Amounts that are the same for every card are arrays of one.
    """

    memory: Integers
    cores: Integers
    room: InstanceChoice | None


class DeviceCriteria(NamedTuple):
    """The request of one container, and the nodes and cards that can never meet it.

    With `alone`, only unused cards are accepted. `too_few` are the nodes without as many cards of
    the vendor as are asked for; a card that is cut counts once for each of its slots. Without
    `possible`, more are asked for than any node of the arrays can give.
    """

    request: DeviceRequest
    alone: bool
    kind_differs: Booleans
    uuid_differs: Booleans
    too_few: Booleans
    possible: bool


def criteria_of(cards: CardWindow, request: DeviceRequest, *, alone: bool) -> DeviceCriteria:
    """Return the criteria of a request, which do not change while cards are chosen."""
    of_vendor = _of_vendor(cards, request.vendor)
    return DeviceCriteria(
        request,
        alone,
        _kind_differs(cards, request, of_vendor),
        _uuid_differs(cards, request.choice),
        _too_few(cards, request, cards.present & of_vendor),
        request.count <= (SHARES_MAX if MIG in cards.arrays.modes else cards.shape[1]),
    )


def amounts_of(cards: CardWindow, load: CardLoads, request: DeviceRequest) -> CardAmounts:
    """Return the amounts that a container would take of each card."""
    if request.percentage:
        memory = cards.memory * request.percentage // 100
    else:
        memory = np.full((1, 1), request.memory)
    if not cards.any_cut:
        return CardAmounts(memory, np.full((1, 1), request.cores), None)
    room = mig_instance_choice.choose_instances(cards, load, request, memory)
    return CardAmounts(room.memory, room.cores, room)


def filter_codes(
    cards: CardWindow,
    load: CardLoads,
    criteria: DeviceCriteria,
    wanted: CardAmounts,
    left: Integers | None,
) -> Codes:
    """Return the code of each card; `left` is how many MiB quotas leave the pod, by row."""
    codes = np.zeros(cards.shape, np.int8)
    broken = [*_of_cards(cards, load, criteria), *_of_amounts(cards, load, criteria, wanted, left)]
    for code, where in broken:
        np.maximum(codes, where.view(np.int8) * np.int8(code), out=codes)
    np.maximum(codes, (~cards.present).view(np.int8) * np.int8(ABSENT), out=codes)
    return codes


def count_by_row(cards: Booleans) -> Integers:
    """Return how many of these cards each row has; as fast as `card_window.rows_with_any`."""
    counts: Integers = np.add.reduce(np.ascontiguousarray(cards.T), axis=0, dtype=np.int64)
    return counts


def _too_few(cards: CardWindow, request: DeviceRequest, of_vendor: Booleans) -> Booleans:
    if not cards.any_cut:
        return count_by_row(of_vendor) < request.count
    times = np.where(cards.cut, cards.slots, 1)
    few: Booleans = np.where(of_vendor, times, 0).sum(axis=1) < request.count
    return few


def _of_cards(
    cards: CardWindow, load: CardLoads, criteria: DeviceCriteria
) -> Iterator[tuple[int, Booleans]]:
    """Yield the rules that do not ask how much a container takes."""
    if cards.offered is not None:
        yield _OFFERED, cards.offered
    yield _ILL, ~cards.usable
    yield _CORDONED, cards.cordoned
    yield _KIND, criteria.kind_differs
    yield _UUID, criteria.uuid_differs
    yield _SLOTS, load.slots >= cards.slots
    if criteria.alone:
        yield _IN_USE, load.slots > 0
    if criteria.request.exclusive:
        yield _SHARED, load.slots > 0
    else:
        yield _NOT_SHARED, load.alone > 0


def _of_amounts(
    cards: CardWindow,
    load: CardLoads,
    criteria: DeviceCriteria,
    wanted: CardAmounts,
    left: Integers | None,
) -> Iterator[tuple[int, Booleans]]:
    """Yield the rules about what a container takes."""
    if left is not None:
        yield _QUOTA, wanted.memory > left[:, None]
    yield _MEMORY, load.memory + wanted.memory > cards.memory
    yield _CORES, load.cores + wanted.cores > cards.cores
    if not criteria.request.cores:
        spent = (load.cores >= cards.cores) & (cards.cores > 0) & (wanted.cores == 0)
        yield _NO_CORES_LEFT, spent
    if wanted.room is not None:
        yield _NO_INSTANCE, cards.cut & (wanted.room.number == mig_instance_choice.NONE)


def _of_vendor(cards: CardWindow, vendor: str) -> Booleans:
    if vendor not in cards.arrays.vendors:
        return np.zeros((1, 1), np.bool_)
    if len(cards.arrays.vendors) == 1:
        return np.ones((1, 1), np.bool_)
    ours: Booleans = cards.arrays.vendor[cards.window] == cards.arrays.vendors.index(vendor)
    return ours


def _kind_differs(cards: CardWindow, request: DeviceRequest, of_vendor: Booleans) -> Booleans:
    arrays, choice = cards.arrays, request.choice
    differs = ~of_vendor
    if choice.use_types or choice.nouse_types:
        bad = [not _accepts_type(choice, kind) for kind in arrays.kinds or [""]]
        differs = differs | np.array(bad)[arrays.kind[cards.window]]
    if choice.mode:
        bad = [bool(mode) and mode not in choice.mode for mode in arrays.modes or [""]]
        differs = differs | np.array(bad)[arrays.mode[cards.window]]
    return differs


def _accepts_type(choice: DeviceSelector, kind: str) -> bool:
    model = kind.lower()
    if any(word.lower() in model for word in choice.nouse_types):
        return False
    return not choice.use_types or any(word.lower() in model for word in choice.use_types)


def _uuid_differs(cards: CardWindow, choice: DeviceSelector) -> Booleans:
    use, nouse = frozenset(choice.use_uuids), frozenset(choice.nouse_uuids)
    if not use and not nouse:
        return _NEVER
    uuids = cards.arrays.uuids
    differs = [
        [uuid in nouse or (bool(use) and uuid not in use) for uuid in uuids[row]]
        for row in cards.row_numbers()
    ]
    return np.array(differs, np.bool_).reshape(cards.shape)

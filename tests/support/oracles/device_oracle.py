"""Device oracle: an independent account of the devices of objects, from the log's events.

It is written from the rules: an object keeps what was charged for it before its first device, and
every rise of its charge by devices has a cause that follows from that amount.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ledger.core.model import events
from ledger.core.model.amounts import Amounts
from ledger.core.model.devices import Devices

OfObjects = events.Committed | events.Observed
OF_DEVICES = ("allocated", "unallocated")
"""The causes of rises by devices."""


class HeldDevices(NamedTuple):
    """The devices of an object, and what was charged for it before the first of them."""

    uid: str
    devices: Devices
    promised: Counter[str]


NONE = HeldDevices("", (), Counter())


class DeviceOracle:
    """Follows the commits and observations of all keys."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], HeldDevices] = {}

    def bound(self, place: tuple[str, str], uid: str) -> Amounts:
        """Return the charge of the object before its first device, {} without devices."""
        held = self.held.get(place, NONE)
        return dict(held.promised) if held.uid == uid else {}

    def changes(self, event: OfObjects) -> bool:
        """Return whether an event changes the devices of its object."""
        return event.devices != self._before(event).devices

    def enter(
        self, event: OfObjects, *, stored: Amounts | None, held: Amounts | None
    ) -> Iterator[str]:
        """Enter an event about an object; yield a sentence for everything that is wrong with it.

        `stored` is the demand of the same object before, and `held` that of the hold that ends.
        """
        before, demand = self._before(event), event.demand
        promised = self._promised(before, stored, held)
        if isinstance(event, events.Observed):
            is_known = stored is not None or held is not None
            yield from self._cause(event, before, promised, is_known=is_known)
        elif demand is None and held is None:
            yield f"{event.key} {event.uid}: is committed without any demand"
        place = event.namespace, event.key
        self.held[place] = HeldDevices(
            event.uid, event.devices, promised if event.devices else Counter()
        )

    def _before(self, event: OfObjects) -> HeldDevices:
        known = self.held.get((event.namespace, event.key), NONE)
        return known if known.uid == event.uid else NONE

    def _promised(
        self, before: HeldDevices, stored: Amounts | None, held: Amounts | None
    ) -> Counter[str]:
        """Return the amounts that may be charged for the object without another reservation."""
        if before.devices:
            return before.promised + (Counter(held or {}) - Counter(stored or {}))
        return Counter(stored or {}) | Counter(held or {})

    def _cause(
        self,
        event: events.Observed,
        before: HeldDevices,
        promised: Counter[str],
        *,
        is_known: bool,
    ) -> Iterator[str]:
        if event.cause in ("moved", "late"):
            return
        beyond = Counter(event.demand) - promised
        wanted = "unreserved"
        if not event.demand:
            wanted = "allocated"
        elif is_known and event.devices != before.devices:
            is_end = not event.devices or (before.devices and not beyond)
            wanted = "unallocated" if is_end else "allocated"
        if event.cause != wanted:
            yield f"{event.key} {event.uid}: {event.cause} is recorded and not {wanted}"

"""Saving oracle: an independent account of envelopes that allocations have lowered.

It is written from the rules: a root is charged at most what its pods take, or the envelope of its
spec less what their devices save, whichever is more. That falls at once, and rises only by what the
spec demands more.
"""

from collections import Counter

from ledger.core.model.amounts import Amounts

Place = tuple[str, str]
"""A namespace and a key in it."""


class SavingOracle:
    """Remembers the envelopes by the specs of the roots that are charged less."""

    def __init__(self) -> None:
        self._specs: dict[Place, tuple[str, Counter[str]]] = {}

    def spec(self, place: Place, uid: str, charged: Amounts) -> Counter[str]:
        """Return the envelope by the spec of the root of this uid, which is charged this."""
        known, spec = self._specs.get(place, ("", Counter()))
        return spec if known == uid else Counter(charged)

    def observed(self, place: Place, uid: str, wanted: Amounts, charged: Amounts) -> Amounts:
        """Return the charge of a root whose spec wants this, and which was charged that."""
        known, spec = self._specs.pop(place, ("", Counter()))
        if known != uid:
            return wanted
        now = Counter(wanted) & (Counter(charged) + (Counter(wanted) - spec))
        if now != Counter(wanted):
            self._specs[place] = uid, Counter(wanted)
        return dict(now)

    def lowered(
        self, place: Place, uid: str, charged: Amounts, pods: list[tuple[Amounts, Amounts]]
    ) -> Amounts:
        """Return the charge of a root with pods of these charges and bounds."""
        taken, saved = Counter[str](), Counter[str]()
        for charge, bound in pods:
            taken += Counter(charge)
            saved += Counter(bound) - Counter(charge)
        spec = self.spec(place, uid, charged)
        now = Counter(charged) & ((spec - saved) | taken)
        if now == Counter(charged):
            return charged
        self._specs[place] = uid, spec
        return dict(now)

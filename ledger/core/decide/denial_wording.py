"""Denial wording: the sentences of a denial for lack of room, with the remedy, from its numbers."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from ledger.core.decide.denial_advice import Admissible, AdmissibleDemand, each_of
from ledger.core.evolve.envelope_charges import NOTHING, drawn_from
from ledger.core.model import display_names
from ledger.core.model.accounts import AccountKind, kind, resource_of
from ledger.core.model.amounts import Amounts, covers
from ledger.core.model.commands import NO_ASKER, Asker, Reserve
from ledger.core.model.denials import Shortage
from ledger.core.model.display_names import Measure
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import Namespace

_HELD_BACK: Final = "counts as what the object was: make that smaller first"


class DenialWording(NamedTuple):
    """The object of the request.

    `root` is the key of the root that it counts with; `others` is set when other pods do, too.
    `each` is the demand of one of its `asker.pods` like pods, empty without such pods. `never` are
    the numbers of the lines without room for even one of its pods when nothing else uses them.
    """

    namespace: str
    key: str
    asker: Asker = NO_ASKER
    each: Amounts = NOTHING
    root: str = ""
    others: bool = False
    never: Collection[int] = ()

    @classmethod
    def of(cls, command: Reserve, space: Namespace) -> "DenialWording":
        """Return the wording for a reservation in a namespace."""
        each = each_of(command.demand, command.asker.pods)
        root = space.entries.get(command.root)
        if root is None or drawn_from(root):
            return cls(command.namespace, command.key, command.asker, each)
        others = any(key != command.key for key in space.members.get(command.root, ()))
        return cls(command.namespace, command.key, command.asker, each, command.root, others)

    def message(self, short: Shortage, line: int) -> str:
        """Return the sentence about a short line of this number, without its full stop."""
        measure = _measure(short)
        lacking = f"has {measure.lacking(short.free)}"
        if line in self.never:
            verb = "does not allow" if _is_shared(short) else "is not allowed"
            lacking = f"{verb} {measure.that_much()}"
        used = f"{short.used} {display_names.are(short.used)}" if short.used else "nothing is"
        return (
            f"{self._subject(short)} {lacking}: {self._asks(short)} would need"
            f" {measure.amount(short.total)}{self._product(short)}, {_allows(short)}"
            f" {short.limit}, {used} used{self._own(short)}"
        )

    def _subject(self, short: Shortage) -> str:
        if kind(short.account) is AccountKind.QUOTA:
            return f"namespace {_name(self.namespace)}"
        return display_names.display(short.account)

    def _asks(self, short: Shortage) -> str:
        where = f" of namespace {_name(self.namespace)}" if _is_shared(short) else ""
        return f"{self._who}{where}"

    def _product(self, short: Shortage) -> str:
        """Return of how many like pods, or cards, the total is, as text."""
        each = self.each.get(resource_of(short.resource), 0)
        if self.asker.cards and not self.others and not _measure(short).is_count:
            cards = self.asker.cards
            return display_names.times(cards, short.total // cards, short.total, "GPUs")
        return display_names.times(self.asker.pods, each, short.total)

    @property
    def _who(self) -> str:
        name = display_names.object_name(self.key, self.asker.kind)
        if self.others:
            return f"{name} with the other pods of {self.root}"
        return f"the roll-out of {name}" if self.asker.rollout else name

    def _own(self, short: Shortage) -> str:
        """Return the object's own charge as text, for quotas whose holders do not show it."""
        on_card = kind(short.account) is AccountKind.CARD
        if short.own <= 0 or (short.own >= short.used and not on_card):
            return ""
        name = display_names.object_name(self.key, self.asker.kind)
        if not on_card and self.root:
            name = self.root
        return f", {short.own} of them by {name}"


def remedy(
    command: Reserve, lines: Sequence[Shortage], admissible: Admissible, asking: DenialWording
) -> str:
    """Return whether a demand can ever fit, and how much of it fits, without the full stop.

    Where other pods count with the object, the amounts of the lines are not its own.
    """
    remedy_text = _remedy(command, lines, admissible, asking)
    if not asking.others:
        return remedy_text
    return f"{remedy_text} for {display_names.object_name(command.key, command.asker.kind)}"


def _remedy(
    command: Reserve, lines: Sequence[Shortage], admissible: Admissible, asking: DenialWording
) -> str:
    alike = bool(asking.each) and command.asker.pods > 1
    if not admissible.never and _is_held_back(command, lines, asking):
        return f"Until it is stored, the change {_HELD_BACK}"
    if not admissible.never:
        return f"{_when(lines)}: {_now(command, lines, admissible.now, alike=alike)}"
    now, ever = admissible.now, admissible.ever
    if now.pods > ever.pods:  # what another attempt at the object holds would do for them
        return f"It can never fit: {_now(command, lines, now, alike=alike)}"
    if ever.pods:
        return f"It can never fit: {_pods_ever(command, now.pods, ever.pods)}"
    demand = asking.each if alike else command.demand
    most = _amounts_ever(lines, demand, now.amounts, ever.amounts)
    if not alike:
        return f"It can never fit: {most}"
    noun = _noun(command.asker, 1)
    needs = _amounts(lines, demand, demand)
    allowed = " are allowed" if now == ever and any(ever.amounts.values()) else ""
    return f"It can never fit, not even 1 {noun}: 1 {noun} needs {needs}, {most}{allowed}"


def of_cards(lines: Sequence[Shortage], *, resizing: bool) -> str:
    """Return the remedy when cards, or quotas for the amounts they add, have no room.

    A resized pod keeps its cards.
    """
    of_quotas = [line for line in lines if kind(line.account) is not AccountKind.CARD]
    if not of_quotas:
        return "Ask for less, or wait" if resizing else "Another card or node may have room"
    if any(line.total > line.limit for line in of_quotas):
        return "Ask for less, or have the limit raised"
    return f"The quota has room when {released(of_quotas)} released"


def _when(lines: Sequence[Shortage]) -> str:
    """Return when to try again: after a release, as far as other objects hold enough."""
    if any(line.short > line.used - line.own for line in lines):
        return "Try again when others have ended"
    others = " by others" if any(line.own for line in lines) else ""
    return f"Try again when {released(lines)} released{others}"


def released(lines: Sequence[Shortage]) -> str:
    """Return the amounts to release before there is room on all lines, with the verb."""
    most: dict[str, tuple[int, Shortage]] = {}
    for line in lines:
        resource = resource_of(line.resource)
        if line.short > most.get(resource, (0, line))[0]:
            most[resource] = line.short, line
    parts = [_measure(line).amount(short) for short, line in most.values()]
    single = len(most) == 1 and next(iter(most.values()))[0] == 1
    return f"{display_names.listed(parts)} {'is' if single else 'are'}"


def _is_held_back(command: Reserve, lines: Sequence[Shortage], asking: DenialWording) -> bool:
    """Return whether the object is refused because of its charge before the change."""
    return not asking.root and any(
        line.total > line.limit >= command.demand.get(resource_of(line.resource), 0)
        for line in lines
    )


def _now(command: Reserve, lines: Sequence[Shortage], now: AdmissibleDemand, *, alike: bool) -> str:
    asker = command.asker
    if now.pods:
        return f"at most {now.pods} {_noun(asker, now.pods)} now"
    if alike:
        return f"no {_noun(asker, 1)} fits now"
    if not any(now.amounts.values()):
        return "nothing is free now"
    return f"at most {_amounts(lines, command.demand, now.amounts)} now"


def _pods_ever(command: Reserve, now: int, ever: int) -> str:
    counted = _counted(command.asker, ever)
    if now == ever:
        return f"at most {counted}"
    return f"at most {counted} if nothing else is used, {now or 'none'} now"


def _amounts_ever(lines: Sequence[Shortage], asked: Amounts, now: Amounts, ever: Amounts) -> str:
    """Return the amounts that fit on quotas that nothing else uses, and those that fit now."""
    free = _amounts(lines, asked, now)
    if not covers(ever, now):  # another attempt at the object holds more than its own
        return f"at most {free} now"
    if not any(ever.values()):
        return f"no {' and no '.join(_measure(line).noun for line in _distinct(lines))} can be had"
    alone = _amounts(lines, asked, ever)
    if now == ever:
        return f"at most {alone}"
    if not any(now.values()):
        return f"at most {alone} if nothing else is used, nothing is free now"
    return f"at most {alone} if nothing else is used, {free} now"


def _amounts(lines: Sequence[Shortage], asked: Amounts, amounts: Amounts) -> str:
    """Return an amount of each resource as text, with amounts of zero last.

    A user writes the amount of each card, but this is the amount of all cards.
    """
    several = any(
        amount > 1 and display_names.measure(resource).is_count
        for resource, amount in asked.items()
    )
    some, none = [], []
    for line in _distinct(lines):
        measure = _measure(line)
        amount = amounts.get(resource_of(line.resource), 0)
        if not amount:
            none.append(f"no {measure.noun}")
        elif not measure.many:
            some.append(f"{amount} of {measure.noun}")
        elif several and measure.is_of_cards:
            some.append(f"{measure.amount(amount)} in total")
        else:
            some.append(measure.amount(amount))
    return display_names.listed(some + none)


def _is_shared(short: Shortage) -> bool:
    return kind(short.account) is AccountKind.UNIVERSE


def _allows(short: Shortage) -> str:
    if kind(short.account) is AccountKind.CARD:
        return "the card has"
    return (
        "the quota allows"
        if _is_shared(short)
        else f"{display_names.display(short.account)} allows"
    )


def _measure(short: Shortage) -> Measure:
    return display_names.measure_of(short.account, short.resource)


def _distinct(lines: Sequence[Shortage]) -> list[Shortage]:
    """Return the first line of each resource."""
    return list({resource_of(line.resource): line for line in reversed(lines)}.values())[::-1]


def _counted(asker: Asker, pods: int) -> str:
    return f"{pods} {_noun(asker, pods)}{'' if asker.replicas else ' at once'}"


def _noun(asker: Asker, pods: int) -> str:
    noun = "replica" if asker.replicas else "pod"
    return noun if pods == 1 else f"{noun}s"


def _name(namespace: str) -> str:
    """Return the name of a qualified namespace in its own cluster."""
    return local_name(namespace) or namespace

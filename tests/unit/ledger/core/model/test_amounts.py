"""Amounts: what one object may ask for, so that the sum of all stays a number that can be kept."""

from support.builders.decide_and_fold import record

from ledger.core.model import accounts, commands
from ledger.core.model.amounts import most_of
from ledger.core.model.state import State
from ledger.log import records

CARDS = "nvidia.com/gpu"
OBJECTS = 3_000


def test_a_quota_may_come_after_thousands_who_asked_for_the_most() -> None:
    state = State()
    asked = [
        commands.Reserve("c1/red", f"pods/p{number}", f"u{number}", {CARDS: most_of(CARDS)})
        for number in range(OBJECTS)
    ]
    first = record(state, asked)
    account = accounts.quota("c1", "red", "late")
    second = record(state, [commands.SetLimits(account, ("c1/red",), {f"limits.{CARDS}": 1})])
    again = State()
    for position, payload in enumerate((first, second), start=1):
        assert payload is not None
        records.fold(again, position, payload)
    assert again.used == [OBJECTS * most_of(CARDS)]
    assert again.used[0] < 2**63

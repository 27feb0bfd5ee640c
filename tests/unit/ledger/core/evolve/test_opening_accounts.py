"""The cost of a new account does not grow with the number of open accounts."""

from typing import Any

from ledger.core.evolve import quota_coverage
from ledger.core.model.state import Account, State


class CountedAccounts(dict[str, Account]):
    """Accounts that count how often all of them are read."""

    read = 0

    def items(self) -> Any:
        self.read += 1
        return super().items()


def test_account_without_new_labels_is_opened_without_reading_the_others() -> None:
    state = State()
    state.accounts = counted = CountedAccounts({"universe/all": Account((), {})})
    assert quota_coverage.number(state, ()) == []
    assert counted.read == 0
    assert quota_coverage.number(state, (("team", 1),)) == []
    assert counted.read == 1

"""Reading again: what exists, once accounts select by labels that were not looked at before.

Until an object was read again, accounts that select by such a label count it whatever its labels
are. So everything is listed anew as soon as a key of labels gets a number.
"""

from webhook.settlement.settlement_session import SettlementSession


class Rereading:
    """Finds out when everything is to be read again."""

    def __init__(self, tenure: SettlementSession) -> None:
        """Begin before the first lists: they read what is numbered by now."""
        self._tenure = tenure
        self._read = tenure.labels.read

    def is_due(self) -> bool:
        """Return, once, whether labels are to be looked at that no list has looked at."""
        read = self._tenure.labels.read
        due, self._read = read > self._read, read
        return due

"""Viewing: the state that a replica has reached, for whoever decides what to tell the ledger."""

from collections.abc import Callable
from typing import Protocol

from ledger.core.model.state import State
from ledger.log.records import Record


class StateView(Protocol):
    """The state that the ledger has reached; read it, never change it."""

    @property
    def state(self) -> State:
        """The state at the newest position this replica has applied."""
        ...

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Call back after every record that was applied."""
        ...

"""The events that a writer reports, for metrics."""

from ledger.core.model.denials import Denial
from ledger.log.ledger_port import Accepted

Answer = Accepted | Denial
"""The answer to a command."""


class WriterObserver:
    """Receives the events of a writer; every method may be overridden, and must be cheap."""

    def batch_stored(self, commands: int, record_bytes: int, seconds: float) -> None:
        """A record was acknowledged, `seconds` after it was sent."""

    def decided(self, answer: Answer) -> None:
        """A command was answered."""

    def conflicted(self) -> None:
        """Another writer took the position first."""

    def ambiguous(self) -> None:
        """An append had an unclear outcome."""

    def blocked(self, seconds: float) -> None:
        """The event loop was held for this long while a batch was decided."""

    def denial_dropped(self) -> None:
        """A denial was not kept."""

    def contradicted(self, problem: str) -> None:
        """A command led to events that contradict the state; it alone was refused."""

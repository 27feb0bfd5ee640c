"""Writer metrics: counts the appends, conflicts, answers and blocked times of the writer."""

from ledger.core.model.denials import Denial
from ledger.log.writer.writer_observer import Answer, WriterObserver
from ledger.runtime.metrics import Telemetry


class WriterMetrics(WriterObserver):
    """Counts the writer's actions. Every method is called in the writer's loop and is cheap."""

    def __init__(self, telemetry: Telemetry) -> None:
        """Count into these metrics."""
        self._telemetry = telemetry
        self._blocked_max = 0.0

    def batch_stored(self, commands: int, record_bytes: int, seconds: float) -> None:
        """Count a record that was acknowledged."""
        self._telemetry.observe("append_seconds", seconds)
        self._telemetry.observe("group_commands", commands)

    def decided(self, answer: Answer) -> None:
        """Count an answer by its verdict and reason."""
        if isinstance(answer, Denial):
            self._telemetry.count("decisions_total", "denied", answer.reason)
        else:
            self._telemetry.count("decisions_total", "accepted", "")

    def conflicted(self) -> None:
        """Count an append that was refused by its expected position."""
        self._telemetry.count("log_conflicts_total")

    def ambiguous(self) -> None:
        """Count an append that had to be looked up."""
        self._telemetry.count("log_ambiguous_total")

    def blocked(self, seconds: float) -> None:
        """Count the time for which a batch held the event loop, and store the longest."""
        self._telemetry.observe("loop_blocked_seconds", seconds)
        if seconds > self._blocked_max:
            self._blocked_max = seconds
            self._telemetry.set("loop_blocked_max_seconds", seconds)

    def denial_dropped(self) -> None:
        """Count a denial that was not stored."""
        self._telemetry.count("refusals_dropped_total")

    def contradicted(self, problem: str) -> None:
        """Count a defect; the writer's answer has the problem."""
        self._telemetry.count("contradictions_total")

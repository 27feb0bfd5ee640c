"""Writer settings: the bounds of its queues, waits and records."""

import msgspec


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the writer: sizes in bytes, times in seconds."""

    group_commands_max: int = 1_000
    """Most commands in one record."""
    slice_seconds_max: float = 0.001
    """Longest time to decide at a stretch: the event loop has others to serve in between."""
    record_bytes_max: int = 1_000_000
    """Largest record: a batch ends before the command that would make it larger."""
    namespace_bytes_burst: int = 256 * 1024**2
    """Bytes that one namespace may append at once."""
    namespace_bytes_rate: int = 32 * 1024
    """Bytes that one namespace may append per second in the long run."""
    queue_commands_max: int = 20_000
    """Most commands that wait, of all namespaces together."""
    queue_namespace_max: int = 5_000
    """Most commands that wait, of one namespace."""
    command_seconds_max: float = 7.0
    """How long a command may wait before it is answered that the ledger cannot be reached."""
    retry_seconds: float = 0.05
    """First pause after a failed append; doubles up to `retry_seconds_max`."""
    retry_seconds_max: float = 1.0
    refresh_seconds: float = 0.25
    """How often an idle writer checks whether another writer has appended."""
    outage_seconds: float = 10.0
    """After so long an outage, commands are refused at once.

    In shorter outages commands wait: a replicated log without its leader is back after 5 to 8 s.
    """
    stall_seconds: float = 1.0
    """An append without an answer for so long makes the writer read the reports of the servers."""
    probe_seconds: float = 2.0
    """First pause between two probes of a log that stores nothing; doubles up to the next."""
    probe_seconds_max: float = 15.0
    behind_seconds_max: float = 0.0
    """How long a log may report an end before the applied position, until it counts as lost.

    The cut-off leader of a replicated log reports such an end for about ten seconds.
    """
    denials_waiting_max: int = 1_000
    """Most denials that wait to be kept; more are dropped and counted."""

"""Stream configuration: the settings that a shard's streams need, and the refusal of other ones.

The log must never drop or renumber a record by itself, so it refuses when full, ages nothing and
cannot be purged. Changes by others can undo that (`discard: old` silently deletes history), so the
configuration is read back and compared each time a log is opened.

No stream is compressed: after a SIGKILL, nats-server 2.15.1 reads compressed blocks of a replicated
stream as corrupt and drops its copy ("s2: corrupt input"). Its sizes count records uncompressed.
"""

from typing import Any, Final

import msgspec

from ledger.log.log_port import LogError
from ledger.log.records import RECORD_BYTES_MAX

HEADERS_BYTES_MAX: Final = 4096
"""Room for the protocol's headers beside a payload; the server counts both."""

_DAY: Final = 24 * 3600 * 1_000_000_000
"""In nanoseconds."""
_UNLIMITED: Final = -1

CONSUMERS_MAX: Final = 256
"""Most readers of a stream at once: replicas, followers and commands. Agents make no consumer."""

LEASES_BYTES_MAX: Final = 1024**2
"""Room for the leases of all clusters of a shard."""

SNAPSHOTS_SHARE: Final = 2
"""Snapshots may take the log's maximum, divided by this. A state is smaller than its log, and two
are kept while a third is saved."""


class ConfigurationDrift(LogError):
    """A stream is not configured as the ledger needs it."""


class StreamConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a JetStream stream's configuration that matters, by its wire names.

    `max_age` is nanoseconds, `max_bytes` and `max_msg_size` bytes; -1 means no limit.
    A field that is left at its default here must be at its default in the server, too.
    """

    name: str
    subjects: list[str]
    discard: str = "old"
    storage: str = "file"
    retention: str = "limits"
    max_bytes: int = _UNLIMITED
    max_age: int = 0
    max_msgs: int = _UNLIMITED
    max_msgs_per_subject: int = _UNLIMITED
    max_consumers: int = _UNLIMITED
    max_msg_size: int = _UNLIMITED
    num_replicas: int = 1
    compression: str = "none"
    persist_mode: str = "default"
    first_seq: int = 0
    no_ack: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    allow_direct: bool = False
    allow_msg_ttl: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    allow_msg_counter: bool = False
    mirror: dict[str, Any] | None = None
    sources: list[Any] | None = None
    subject_transform: dict[str, Any] | None = None


class StreamNames(msgspec.Struct, frozen=True):
    """The streams and subjects of one shard."""

    shard: str

    @property
    def subjects(self) -> str:
        """All subjects of the shard."""
        return f"ledger.{self.shard}.>"

    @property
    def log(self) -> str:
        """The stream of records."""
        return f"LEDGER-{self.shard}"

    @property
    def log_subject(self) -> str:
        """The one subject of the log."""
        return f"ledger.{self.shard}.log"

    @property
    def news_subject(self) -> str:
        """The subject of append notices between replicas."""
        return f"ledger.{self.shard}.news"

    @property
    def hints_subject(self) -> str:
        """The subject of hints between replicas."""
        return f"ledger.{self.shard}.hints"

    def beats_subject(self, cluster: str) -> str:
        """The subject of the beats of the replica that answers the reviews of a cluster alone."""
        return f"ledger.{self.shard}.beats.{cluster}"

    def questions_subject(self, cluster: str) -> str:
        """The subject of questions to the active replica of a cluster."""
        return f"ledger.{self.shard}.questions.{cluster}"

    @property
    def survey_subject(self) -> str:
        """The subject of surveys of the schemas that replicas read."""
        return f"ledger.{self.shard}.survey"

    def survey_answers_subject(self, nonce: str) -> str:
        """The subject of the answers to one survey."""
        return f"ledger.{self.shard}.survey.{nonce}"

    @property
    def snapshots(self) -> str:
        """The stream of snapshots."""
        return f"LEDGER-{self.shard}-SNAP"

    @property
    def chunk_subject(self) -> str:
        """Where pieces of snapshots go."""
        return f"ledger.{self.shard}.snap.chunk"

    @property
    def manifest_subject(self) -> str:
        """Where a snapshot becomes valid."""
        return f"ledger.{self.shard}.snap.manifest"

    @property
    def denials(self) -> str:
        """The stream of denials."""
        return f"LEDGER-{self.shard}-DENIALS"

    @property
    def denials_subject(self) -> str:
        """The one subject of the denials."""
        return f"ledger.{self.shard}.denials"

    @property
    def owner(self) -> str:
        """The stream that holds the preferred owner's lease."""
        return f"LEDGER-{self.shard}-OWNER"

    @property
    def owner_subject(self) -> str:
        """The one subject of the lease."""
        return f"ledger.{self.shard}.owner"

    @property
    def settlers(self) -> str:
        """The stream of the leases to settle, one per cluster."""
        return f"LEDGER-{self.shard}-SETTLERS"

    def settler_subject(self, cluster: str) -> str:
        """The subject of one cluster's lease; `*` for those of all."""
        return f"ledger.{self.shard}.settler.{cluster}"

    def commands_subject(self, writer: str) -> str:
        """Where a writer takes forwarded commands."""
        return f"ledger.{self.shard}.commands.{writer}"


def log_stream(names: StreamNames, replicas: int, max_bytes: int) -> StreamConfig:
    """Describe the log: it refuses when full, keeps everything, and forbids deletion."""
    return StreamConfig(
        name=names.log,
        subjects=[names.log_subject],
        discard="new",
        max_bytes=max_bytes,
        max_msg_size=RECORD_BYTES_MAX,
        max_consumers=CONSUMERS_MAX,
        num_replicas=replicas,
        deny_delete=True,
        deny_purge=True,
        allow_direct=True,
    )


def snapshot_stream(names: StreamNames, replicas: int, max_bytes: int) -> StreamConfig:
    """Describe the snapshots: disposable, cleaned up by the replica that saves one.

    Beyond `max_bytes` the oldest pieces are dropped, and their snapshot becomes invalid.
    """
    return StreamConfig(
        name=names.snapshots,
        subjects=[names.chunk_subject, names.manifest_subject],
        max_bytes=max_bytes,
        max_msg_size=RECORD_BYTES_MAX,
        max_consumers=CONSUMERS_MAX,
        num_replicas=replicas,
    )


def denials_stream(names: StreamNames, replicas: int, max_bytes: int, days: int) -> StreamConfig:
    """Describe the denials: the oldest ones go by age, kept for so many days, and by size."""
    return StreamConfig(
        name=names.denials,
        subjects=[names.denials_subject],
        max_bytes=max_bytes,
        max_age=days * _DAY,
        max_msg_size=RECORD_BYTES_MAX,
        max_consumers=CONSUMERS_MAX,
        num_replicas=replicas,
    )


def owner_stream(names: StreamNames, replicas: int) -> StreamConfig:
    """Describe the lease to write the shard."""
    return _lease_stream(names.owner, names.owner_subject, replicas)


def settler_stream(names: StreamNames, replicas: int) -> StreamConfig:
    """Describe the leases to settle: several clusters may share a shard, and each is settled."""
    return _lease_stream(names.settlers, names.settler_subject("*"), replicas)


def _lease_stream(name: str, subject: str, replicas: int) -> StreamConfig:
    """Describe leases: the last message of each only, in memory, gone by its own time to live."""
    return StreamConfig(
        name=name,
        subjects=[subject],
        storage="memory",
        max_msgs_per_subject=1,
        max_bytes=LEASES_BYTES_MAX,
        max_consumers=1,
        num_replicas=replicas,
        allow_msg_ttl=True,
    )


def compare(wanted: StreamConfig, actual: StreamConfig) -> None:
    """Check a stream's configuration against the wanted one.

    More replicas than wanted are fine. So is another size or age, unless only one of both has no
    limit: see `adjustments`. Until it is adjusted, a stream that drops its oldest messages may be
    without a limit of size, and any stream may be compressed, as older versions made them. A server
    cannot change how many consumers a stream may have, so that is not compared. Raises
    ConfigurationDrift naming every field that differs.
    """
    differences = [
        f"{field} is {_show(actual, field)}, wanted {_show(wanted, field)}"
        for field in StreamConfig.__struct_fields__
        if field not in _not_compared(wanted)
        and not _agrees(field, getattr(wanted, field), getattr(actual, field))
    ]
    if differences:
        raise ConfigurationDrift(
            f"stream {wanted.name}: {'; '.join(differences)}."
            f" Correct it with `nats stream edit {wanted.name}`, or restore the log to a new store"
        )


def adjustments(wanted: StreamConfig, actual: StreamConfig) -> dict[str, int | str]:
    """Return the fields of a matching stream that differ from the current settings.

    A size is raised, which is the remedy for a full log, and never lowered: an operator may have
    raised it by hand, and a log that is larger than its maximum refuses everything.
    """
    changes = dict[str, int | str]()
    if wanted.compression != actual.compression:
        changes["compression"] = wanted.compression
    if wanted.max_bytes > actual.max_bytes:
        changes["max_bytes"] = wanted.max_bytes
    if wanted.max_age != actual.max_age:
        changes["max_age"] = wanted.max_age
    return changes


def _not_compared(wanted: StreamConfig) -> tuple[str, ...]:
    sizes = ("max_bytes",) if wanted.discard == "old" else ()
    return ("max_consumers", "compression", *sizes)


def _agrees(field: str, wanted: Any, actual: Any) -> bool:
    if field == "num_replicas":
        return bool(actual >= wanted)
    if field in ("max_bytes", "max_age"):
        return bool((actual > 0) == (wanted > 0))
    if field == "first_seq":
        return actual in (0, 1)
    return bool((wanted or None) == (actual or None))


def _show(config: StreamConfig, field: str) -> str:
    return repr(getattr(config, field))

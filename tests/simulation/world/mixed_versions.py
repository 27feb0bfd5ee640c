"""Mixed versions: replicas with even numbers are of the next version; the others began the log.

The next version reads one schema more. The replicas of this version refuse such a record where they
read one, as `ledger.log.records` does, and the writer then stops.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ledger.log import record_schema, records
from ledger.log.log_port import LogEntry
from simulation.defects.planting import Defect, Put, planting
from simulation.engine.faulty_log import DistantLog
from simulation.world.replica import Replica

THIS: Final = record_schema.SCHEMA
NEXT: Final = THIS + 1


class OlderLog(DistantLog):
    """A client of this version, which reads no record of the next schema."""

    async def get(self, position: int) -> bytes | None:
        """Return a record; see `ledger.log.log_port.Log`."""
        payload = await super().get(position)
        if payload is not None:
            _read(payload)
        return payload

    async def read(self, first: int, last: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield records; see `ledger.log.log_port.Log`."""
        async for batch in super().read(first, last):
            for entry in batch:
                _read(entry.payload)
            yield batch


def _read(payload: bytes) -> None:
    if (schema := records.schema_of(payload)) > THIS:
        raise records.NewerSchema(f"the log holds records of schema {schema}: upgrade it")


def is_next(name: str) -> bool:
    """Return whether a replica of this name is of the next version."""
    return int(name.removeprefix("r")) % 2 == 0


def _two_versions(put: Put) -> None:
    built = Replica._build

    def build(self: Replica) -> None:
        built(self)
        if not is_next(self.name):
            self._log.__class__ = OlderLog

    put(record_schema, "SCHEMA", NEXT)
    # This version began the log.
    put(record_schema, "to_seal", lambda last: max(last, THIS))
    put(Replica, "_build", build)


def _seals_newest(put: Put) -> None:
    """Let the next version seal with its own schema at once."""
    made = records.next_record

    def make(state: Any, time: int, writer: str, nonce: str, **more: Any) -> Any:
        schema = NEXT if is_next(writer) else THIS
        return made(state, time, writer, nonce, **(more | {"schema": schema}))

    put(records, "next_record", make)


TWO_VERSIONS: Final = Defect("two-versions", "replicas of two versions run", _two_versions)
SEALS_NEWEST: Final = Defect("seals-newest", "the next version seals its own", _seals_newest)


@contextmanager
def mixed_versions(*, seals_newest: bool = False) -> Iterator[None]:
    """Run replicas of two versions; with the defect, the next one seals its own schema at once."""
    with planting([TWO_VERSIONS, *([SEALS_NEWEST] if seals_newest else [])]):
        yield

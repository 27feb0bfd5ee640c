"""A restore over connections that break: each record is stored once, at its position."""

from collections import Counter
from pathlib import Path

import pytest

from gpuledger.cli.exit_codes import CommandError
from gpuledger.storage import archive_file, backup
from gpuledger.storage.archive_file import ArchiveHeader, ArchiveWriter
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.memory_log import NO_FAULT, CallFate, Fault, MemoryLog, MemoryStore
from ledger.log.recovery.log_end_check import LogHead

COUNT = 4


class LostOnce:
    """Loses the second append, or its acknowledgement."""

    def __init__(self, fate: CallFate) -> None:
        self._fate = fate
        self._calls: Counter[str] = Counter()

    def strike(self, call: str) -> Fault:
        self._calls[call] += 1
        return Fault(self._fate) if (call, self._calls[call]) == ("append", 2) else NO_FAULT


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, LogHead]:
    """Return a backup of some empty records, and its head."""
    state, path = State(), tmp_path / "ledger.backup"
    with ArchiveWriter(path, ArchiveHeader("main", COUNT)) as writer:
        for number in range(COUNT):
            record, payload, digest = records.next_record(
                state, number + 1, "writer", f"nonce{number}", group=0, items=[]
            )
            writer.add(payload)
            state.seal(record.position, digest, record.time)
        writer.finish()
    return path, LogHead(state.position, state.hash.hex())


@pytest.mark.parametrize("fate", [CallFate.REQUEST_LOST, CallFate.ACK_LOST])
async def test_a_record_without_an_acknowledgement_is_stored_once(
    archive: tuple[Path, LogHead], fate: CallFate
) -> None:
    path, head = archive
    store = MemoryStore(exists=True)
    await backup.refill(MemoryLog(store, LostOnce(fate)), path, head)
    assert store.records == list(archive_file.read(path))[1:]


async def test_a_log_that_another_program_writes_is_not_filled(
    archive: tuple[Path, LogHead],
) -> None:
    path, head = archive
    store = MemoryStore(exists=True)
    store.records.append(b"foreign")
    with pytest.raises(CommandError, match="another program wrote position 1"):
        await backup.refill(MemoryLog(store), path, head)

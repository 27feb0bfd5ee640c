"""The opening of a log whose servers do not report a stream that they have."""

from pathlib import Path
from typing import Literal, cast

import pytest

from gpuledger.server import ledger_replica
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.wiring.log_from_settings import LogServers
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import StreamMissing
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime.settings.settings import Settings


class LaggingLog:
    """A log that is reported as missing after it was opened, as often as `missing`."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.opened = 0

    async def open(self, *, create: bool) -> None:
        self.opened += 1

    async def adjust(self) -> None:
        if self.opened <= self.missing:
            raise StreamMissing("stream LEDGER-main-DENIALS does not exist")


class OpenedWriter:
    async def open(self, known: object) -> None:
        return


async def opened(store: Path, log: LaggingLog, *, replicas: Literal[1, 3]) -> int:
    """Open a replica's log, and return the number of attempts."""
    settings = Settings(store_dir=str(store), replicas=replicas)
    replica = LedgerReplica(settings, LogServers((), "", "", ()), observer=WriterObserver())
    await replica._open(cast("JetStreamLog", log), cast("Writer", OpenedWriter()))
    return log.opened


async def test_log_opens_when_the_servers_report_a_stream_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_replica, "CONNECT_AGAIN_SECONDS", 0)
    assert await opened(tmp_path, LaggingLog(2), replicas=3) == 3


async def test_log_is_lost_when_its_only_server_reports_no_stream(tmp_path: Path) -> None:
    with pytest.raises(StreamMissing):
        await opened(tmp_path, LaggingLog(1), replicas=1)

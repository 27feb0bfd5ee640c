"""Snapshots of schema 3, as versions before this one wrote them, are the same state today."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from support.builders.state_comparison import differences
from support.recorded.golden_logs import GOLDEN, Expected, payloads_of

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.core.snapshot_format import InvalidSnapshot
from ledger.log import records

OLDER = sorted(GOLDEN.glob("*.snapshot-3"))


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_a_snapshot_of_schema_3_is_the_state_of_its_log(path: Path) -> None:
    expected = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Expected)
    read = snapshot_format.decode(path.read_bytes())
    assert hashlib.sha256(snapshot_format.encode(read)).hexdigest() == expected.state
    state = State()
    for position, payload in enumerate(payloads_of(path.with_suffix(".log")), start=1):
        records.fold(state, position, payload)
    assert differences(read, state) == []


def test_there_is_an_older_snapshot_of_each_log() -> None:
    """Versions that write schema 3 read logs up to schema 4."""
    logs = [path.stem for path in sorted(GOLDEN.glob("*.log"))]
    assert [path.stem for path in OLDER] == [name for name in logs if name <= "schema-4"]


def test_a_damaged_snapshot_of_schema_3_is_refused() -> None:
    stored = OLDER[-1].read_bytes()
    for at in range(0, len(stored), 7):
        damaged = bytearray(stored)
        damaged[at] ^= 1
        with pytest.raises(InvalidSnapshot):
            snapshot_format.decode(bytes(damaged))


def test_accounts_that_count_only_reviewed_demand_are_read() -> None:
    """Schema 3 lists them at its end, and no golden log has one."""
    _, _, body = msgspec.msgpack.decode(OLDER[-1].read_bytes())
    image = msgspec.msgpack.decode(body)
    state = snapshot_format.decode(OLDER[-1].read_bytes())
    name = next(name for name, account in state.accounts.items() if account.covers)
    body = msgspec.msgpack.encode([*image[:15], state.labels, [name]])
    stored = msgspec.msgpack.encode((3, hashlib.sha256(body).digest(), body))
    read = snapshot_format.decode(stored)
    assert [each for each, account in read.accounts.items() if account.asked_only] == [name]
    for covered in read.accounts[name].covers:
        assert read.namespaces[covered].asked_only == {*read.accounts[name].lines.values()}

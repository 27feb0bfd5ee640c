"""A damaged or inconsistent snapshot is refused when it is decoded, not when it is used."""

import hashlib
from typing import Any

import msgspec
import pytest
from support.recorded.golden_logs import GOLDEN, payloads_of

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.core.snapshot.snapshot_image import ImageWithDevices, SnapshotImage
from ledger.core.snapshot_format import InvalidSnapshot
from ledger.log import records


def stored(name: str = "schema-4.log") -> bytes:
    state = State()
    for position, payload in enumerate(payloads_of(GOLDEN / name), start=1):
        records.fold(state, position, payload)
    return snapshot_format.encode(state)


STORED = stored()
WITH_DEVICES = stored("schema-5.log")


def image(of: bytes = STORED, kind: type[SnapshotImage] = SnapshotImage) -> SnapshotImage:
    return msgspec.msgpack.decode(msgspec.msgpack.decode(of)[2], type=kind)


def sealed(changed: Any, schema: int = snapshot_format.WITHOUT_DEVICES) -> bytes:
    body = msgspec.msgpack.encode(changed)
    return msgspec.msgpack.encode((schema, hashlib.sha256(body).digest(), body))


@pytest.mark.parametrize("whole", [STORED, WITH_DEVICES], ids=["plain", "devices"])
def test_a_changed_byte_is_refused_wherever_it_is(whole: bytes) -> None:
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(InvalidSnapshot):
            snapshot_format.decode(bytes(damaged))


def test_a_snapshot_that_was_cut_is_refused_wherever_it_was() -> None:
    for end in range(len(STORED)):
        with pytest.raises(InvalidSnapshot):
            snapshot_format.decode(STORED[:end])


@pytest.mark.parametrize("schema", [2, 6])
def test_a_snapshot_of_another_schema_is_refused_by_its_number(schema: int) -> None:
    with pytest.raises(InvalidSnapshot, match=f"has schema {schema}, this version reads 3, 4, 5"):
        snapshot_format.decode(sealed([], schema))


def test_an_intact_image_is_read() -> None:
    assert snapshot_format.encode(snapshot_format.decode(sealed(image()))) == STORED


@pytest.mark.parametrize(
    ("table", "changes", "reason"),
    [
        ("spaces", {"entries": 0}, "rows of a table of"),
        ("spaces", {"holds": 9}, "rows of a table of"),
        ("spaces", {"objects": b"\x01"}, "numbers has 1 bytes"),
        ("spaces", {"accounts": 999}, "999 … 999 of"),
        ("spaces", {"covering": 99}, "numbers has"),
        ("entries", {"bodies": b"\x01\x02\x03"}, "numbers has 3 bytes"),
        ("entries", {"bodies": 4}, "objects and .* holds"),
        ("holds", {"shapes": 999}, "999 … 999 of"),
        ("holds", {"shapes": -1}, "-1 … -1 of"),
        ("holds", {"times": [1]}, "numbers has 1"),
        ("holds", {"shape_values": [(0, 0, 0, 0, at, 0) for at in range(100)]}, "0 … 99 of"),
        ("objects", {"shape_values": [(0, -1, 0, 0)] * 20}, "-1 … -1 of"),
        ("objects", {"versions": b""}, "numbers has 0"),
        ("lines", {"limit": []}, "limits"),
        ("lines", {"keys": 99}, "out of range"),
    ],
)
def test_inconsistent_tables_are_refused(table: str, changes: dict[str, Any], reason: str) -> None:
    whole = image()
    changed = msgspec.structs.replace(getattr(whole, table), **changes)
    with pytest.raises(InvalidSnapshot, match=reason):
        snapshot_format.decode(sealed(msgspec.structs.replace(whole, **{table: changed})))


def test_the_schema_shows_whether_objects_have_devices() -> None:
    assert snapshot_format.schema_of(STORED) == snapshot_format.WITHOUT_DEVICES
    assert snapshot_format.schema_of(WITH_DEVICES) == snapshot_format.SCHEMA
    whole = image(WITH_DEVICES, ImageWithDevices)
    again = snapshot_format.decode(sealed(whole, snapshot_format.SCHEMA))
    assert snapshot_format.encode(again) == WITH_DEVICES
    with pytest.raises(InvalidSnapshot, match="does not decode"):
        snapshot_format.decode(sealed(image(), snapshot_format.SCHEMA))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": 999}, "999 … 999 of"),
        ({"rows": b""}, "numbers has 0"),
        ({"bounds": 999}, "999 … 999 of"),
        ({"bounds": -1}, "-1 … -1 of"),
    ],
)
def test_an_inconsistent_table_of_devices_is_refused(changes: dict[str, Any], reason: str) -> None:
    whole = image(WITH_DEVICES, ImageWithDevices)
    assert isinstance(whole, ImageWithDevices)
    changed = msgspec.structs.replace(whole.allocations, **changes)
    with pytest.raises(InvalidSnapshot, match=reason):
        snapshot_format.decode(
            sealed(msgspec.structs.replace(whole, allocations=changed), snapshot_format.SCHEMA)
        )

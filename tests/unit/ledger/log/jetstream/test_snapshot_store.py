"""Snapshots come back whole or not at all."""

from collections.abc import Iterable

import msgspec
import pytest

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log.jetstream import snapshot_store
from ledger.log.jetstream.snapshot_store import CHUNK_BYTES, Manifest, PieceCollector
from ledger.log.log_port import Snapshot


def sealed(snapshot: Snapshot, upload: str = "u") -> tuple[Manifest, list[bytes]]:
    """Cut a snapshot and seal it."""
    pieces = list(snapshot_store.cut(snapshot, upload))
    manifest = snapshot_store.decode_manifest(
        snapshot_store.manifest(snapshot, upload, len(pieces), 1)
    )
    assert manifest is not None
    return manifest, pieces


def join(manifest: Manifest, payloads: Iterable[bytes]) -> Snapshot | None:
    collector = PieceCollector(manifest)
    for payload in payloads:
        collector.add(payload)
    return collector.snapshot()


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_what_was_cut_is_joined(size: int) -> None:
    snapshot = Snapshot(7, bytes(size))
    manifest, pieces = sealed(snapshot)
    assert len(pieces) == max(1, -(-size // CHUNK_BYTES))
    assert join(manifest, pieces) == snapshot


def test_pieces_of_others_and_strange_messages_are_passed_over() -> None:
    snapshot = Snapshot(7, b"ours")
    manifest, pieces = sealed(snapshot)
    others = snapshot_store.cut(Snapshot(7, b"theirs"), "v")
    assert join(manifest, [b"\xff", *others, *pieces, *others, b""]) == snapshot


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_piece_makes_it_none(missing: int) -> None:
    manifest, pieces = sealed(Snapshot(7, bytes(3 * CHUNK_BYTES)))
    del pieces[missing]
    assert join(manifest, pieces) is None


def test_a_changed_piece_makes_it_none() -> None:
    manifest, pieces = sealed(Snapshot(7, b"state"))
    forged = snapshot_store.cut(Snapshot(7, b"stale"), "u")
    assert join(manifest, forged) is None
    assert join(manifest, pieces) is not None


def test_invalid_manifest_decodes_to_none() -> None:
    assert snapshot_store.decode_manifest(b"not one") is None
    assert snapshot_store.decode_manifest(msgspec.msgpack.encode([1, 2])) is None


def test_a_manifest_names_the_schema_of_its_snapshot() -> None:
    manifest, _ = sealed(Snapshot(7, snapshot_format.encode(State())))
    assert manifest.schema == snapshot_format.WITHOUT_DEVICES
    manifest, _ = sealed(Snapshot(7, b"state"))
    assert manifest.schema == snapshot_format.SCHEMA


def test_a_manifest_of_schema_3_is_still_read() -> None:
    older = msgspec.msgpack.encode(("upload", 7, 2, 40, b"sha"))
    assert snapshot_store.decode_manifest(older) == Manifest(3, "upload", 7, 2, 40, b"sha")


def test_a_version_that_writes_schema_3_sees_no_manifest_of_ours() -> None:
    """It would take the snapshot for a damaged one, and `audit verify` would report a lost log."""
    payload = snapshot_store.manifest(Snapshot(7, b"state"), "u", 1, 1)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(payload, type=tuple[str, int, int, int, bytes])


def test_pieces_beyond_the_count_take_no_memory() -> None:
    manifest, pieces = sealed(Snapshot(7, b"ours"))
    collector = PieceCollector(manifest)
    for payload in (*pieces, msgspec.msgpack.encode(("u", 1, bytes(100)))):
        collector.add(payload)
    assert collector.snapshot() == Snapshot(7, b"ours")

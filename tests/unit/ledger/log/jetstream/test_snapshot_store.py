"""Snapshots come back whole or not at all."""

import msgspec
import pytest

from ledger.log.jetstream import snapshot_store
from ledger.log.jetstream.snapshot_store import CHUNK_BYTES, Manifest
from ledger.log.log_port import Snapshot


def sealed(snapshot: Snapshot, upload: str = "u") -> tuple[Manifest, list[bytes]]:
    """Cut a snapshot and seal it."""
    pieces = snapshot_store.cut(snapshot, upload)
    manifest = snapshot_store.decode_manifest(
        snapshot_store.manifest(snapshot, upload, len(pieces), 1)
    )
    assert manifest is not None
    return manifest, pieces


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_what_was_cut_is_joined(size: int) -> None:
    snapshot = Snapshot(7, bytes(size))
    manifest, pieces = sealed(snapshot)
    assert len(pieces) == max(1, -(-size // CHUNK_BYTES))
    assert snapshot_store.join(manifest, pieces) == snapshot


def test_pieces_of_others_and_strange_messages_are_passed_over() -> None:
    snapshot = Snapshot(7, b"ours")
    manifest, pieces = sealed(snapshot)
    others = snapshot_store.cut(Snapshot(7, b"theirs"), "v")
    assert snapshot_store.join(manifest, [b"\xff", *others, *pieces, *others, b""]) == snapshot


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_piece_makes_it_none(missing: int) -> None:
    manifest, pieces = sealed(Snapshot(7, bytes(3 * CHUNK_BYTES)))
    del pieces[missing]
    assert snapshot_store.join(manifest, pieces) is None


def test_a_changed_piece_makes_it_none() -> None:
    manifest, pieces = sealed(Snapshot(7, b"state"))
    forged = snapshot_store.cut(Snapshot(7, b"stale"), "u")
    assert snapshot_store.join(manifest, forged) is None
    assert snapshot_store.join(manifest, pieces) is not None


def test_invalid_manifest_decodes_to_none() -> None:
    assert snapshot_store.decode_manifest(b"not one") is None
    assert snapshot_store.decode_manifest(msgspec.msgpack.encode([1, 2])) is None

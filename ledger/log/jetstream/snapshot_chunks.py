"""Snapshots cut into messages, and put together again only when every piece is there.

A manifest is published after the last piece and names them all; without it, or with a piece
missing or changed, there is no snapshot. So a saver that dies half way leaves nothing that
could be mistaken for one, and two savers at the same time do not disturb each other.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import msgspec

from ledger.log.log_port import Snapshot

CHUNK_BYTES: Final = 524_288
"""Size of a piece; well below the largest message."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Piece `index` of the snapshot `upload`."""

    upload: str
    index: int
    data: bytes


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The proof that `upload` is whole: a snapshot at `position`, in `count` pieces.

    Its pieces lie in the stream from sequence `first` up to the manifest itself.
    """

    upload: str
    position: int
    count: int
    first: int
    sha256: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_chunks: Final = msgspec.msgpack.Decoder(Chunk)
_manifests: Final = msgspec.msgpack.Decoder(Manifest)


def cut(snapshot: Snapshot, upload: str) -> list[bytes]:
    """Cut a snapshot into encoded pieces, at least one."""
    starts = range(0, max(len(snapshot.payload), 1), CHUNK_BYTES)
    return [
        _encoder.encode(Chunk(upload, index, snapshot.payload[start : start + CHUNK_BYTES]))
        for index, start in enumerate(starts)
    ]


def manifest(snapshot: Snapshot, upload: str, count: int, first: int) -> bytes:
    """Encode the manifest of a snapshot whose `count` pieces are stored from `first` on."""
    digest = hashlib.sha256(snapshot.payload).digest()
    return _encoder.encode(Manifest(upload, snapshot.position, count, first, digest))


def decode_manifest(payload: bytes) -> Manifest | None:
    """Decode a manifest; None when it is invalid."""
    try:
        return _manifests.decode(payload)
    except msgspec.MsgspecError:
        return None


def join(wanted: Manifest, payloads: Iterable[bytes]) -> Snapshot | None:
    """Put a snapshot together from the messages that may hold its pieces; None if one is wrong."""
    pieces: dict[int, bytes] = {}
    for payload in payloads:
        try:
            chunk = _chunks.decode(payload)
        except msgspec.MsgspecError:
            continue
        if chunk.upload == wanted.upload:
            pieces[chunk.index] = chunk.data
    if sorted(pieces) != list(range(wanted.count)):
        return None
    whole = b"".join(pieces[index] for index in range(wanted.count))
    if hashlib.sha256(whole).digest() != wanted.sha256:
        return None
    return Snapshot(wanted.position, whole)

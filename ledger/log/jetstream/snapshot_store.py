"""Snapshot store: snapshots as pieces in a stream, of which the newest two stay.

A manifest is published after the last piece and names them all; without it, or with a piece
missing or changed, there is no snapshot. So a saver that dies half way leaves nothing that
could be mistaken for one, and two savers at the same time do not disturb each other.
"""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import Snapshot, Unreachable

CHUNK_BYTES: Final = 524_288
"""Size of a piece; well below the largest message."""

SNAPSHOTS_KEPT: Final = 2
"""Snapshots that stay when a new one is complete."""


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


class SnapshotStore:
    """The snapshots of one shard."""

    def __init__(self, connection: NatsConnection, names: StreamNames) -> None:
        self._connection, self._names = connection, names

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in pieces, its manifest last, and drop all but the newest two.

        Raises Unreachable, and Lost when the stream of snapshots is gone.
        """
        upload = uuid.uuid4().hex
        pieces = cut(snapshot, upload)
        first = 0
        for piece in pieces:
            stored = await self._keep(self._names.chunk_subject, piece)
            first = first or stored
        sealed = manifest(snapshot, upload, len(pieces), first)
        await self._keep(self._names.manifest_subject, sealed)
        await self._drop_old_snapshots()

    async def load(self) -> Sequence[Snapshot]:
        """Return the complete snapshots, newest first."""
        loaded = []
        for sequence, manifest in await self._manifests():
            snapshot = await self._load(manifest, sequence)
            if snapshot is not None:
                loaded.append(snapshot)
        return sorted(loaded, key=lambda snapshot: snapshot.position, reverse=True)[:SNAPSHOTS_KEPT]

    async def _keep(self, subject: str, payload: bytes) -> int:
        """Store a disposable message. Returns its sequence; raises Unreachable."""
        try:
            ack = await jetstream_api.store(self._connection, subject, payload)
        except (TimeoutError, msgspec.MsgspecError) as error:
            raise Unreachable(f"{subject}: no acknowledgement") from error
        if ack.error is not None:
            raise Unreachable(f"{subject}: {ack.error.description} ({ack.error.err_code})")
        return ack.seq

    async def _manifests(self) -> list[tuple[int, Manifest]]:
        """Return the manifests with their sequences, oldest first."""
        manifests: list[tuple[int, Manifest]] = []
        sequence = 1
        subject = self._names.manifest_subject
        while True:
            wanted: dict[str, object] = {"seq": sequence, "next_by_subj": subject}
            stored = await jetstream_api.message(self._connection, self._names.snapshots, wanted)
            if stored is None:
                return manifests
            manifest = decode_manifest(stored.data)
            if manifest is not None:
                manifests.append((stored.seq, manifest))
            sequence = stored.seq + 1

    async def _drop_old_snapshots(self) -> None:
        kept = (await self._manifests())[-SNAPSHOTS_KEPT:]
        if len(kept) < SNAPSHOTS_KEPT:
            return
        # Of two savers at the same time, the later manifest may have the earlier pieces.
        first = min(manifest.first for _, manifest in kept)
        await jetstream_api.purge_before(self._connection, self._names.snapshots, first)

    async def _load(self, manifest: Manifest, sequence: int) -> Snapshot | None:
        # One by one and not by a consumer, because agents may make none.
        pieces: list[bytes] = []
        for at in range(manifest.first, sequence):
            stored = await jetstream_api.message(
                self._connection, self._names.snapshots, {"seq": at}
            )
            if stored is not None:
                pieces.append(stored.data)
        return join(manifest, pieces)

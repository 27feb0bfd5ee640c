"""Snapshot store: snapshots as pieces in a stream, of which the newest two stay.

A manifest is published after the last piece and names them all; without it, or with a piece
missing or changed, there is no snapshot. So a saver that dies half way leaves nothing that
could be mistaken for one, and two savers at the same time do not disturb each other.
"""

import hashlib
import uuid
from collections.abc import AsyncGenerator, Iterator, Set
from contextlib import aclosing
from typing import Final

import msgspec
import structlog

from ledger.core import snapshot_format
from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.missing_records import Stream
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.readers import push_consumer
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import Snapshot, Unreachable

CHUNK_BYTES: Final = 524_288
"""Size of a piece; well below the largest message."""

SNAPSHOTS_KEPT: Final = 2
"""Snapshots that stay when a new one is complete."""

LISTINGS_MAX: Final = 8
"""Most listings of the snapshots in one load. Another follows where a snapshot was incomplete."""

OLDER_SCHEMA: Final = 3
"""The schema of snapshots whose manifest does not name it."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Piece `index` of the snapshot `upload`."""

    upload: str
    index: int
    data: bytes


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The proof that `upload` is whole: a snapshot of a schema at `position`, in `count` pieces.

    Its pieces lie in the stream from sequence `first` up to the manifest itself. Versions that
    write schema 3 pass this manifest over, because theirs begins with the upload.
    """

    schema: int
    upload: str
    position: int
    count: int
    first: int
    sha256: bytes


class _OlderManifest(msgspec.Struct, frozen=True, array_like=True):
    """The manifest of a snapshot of schema 3."""

    upload: str
    position: int
    count: int
    first: int
    sha256: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_chunks: Final = msgspec.msgpack.Decoder(Chunk)
_manifests: Final = msgspec.msgpack.Decoder(Manifest)
_older_manifests: Final = msgspec.msgpack.Decoder(_OlderManifest)
_log: Final = structlog.get_logger("ledger.log")


def cut(snapshot: Snapshot, upload: str) -> Iterator[bytes]:
    """Yield the encoded pieces of a snapshot, at least one."""
    payload = memoryview(snapshot.payload)
    for index, start in enumerate(range(0, max(len(payload), 1), CHUNK_BYTES)):
        yield _encoder.encode((upload, index, payload[start : start + CHUNK_BYTES]))


def manifest(snapshot: Snapshot, upload: str, count: int, first: int) -> bytes:
    """Encode the manifest of a snapshot whose `count` pieces are stored from `first` on."""
    digest = hashlib.sha256(snapshot.payload).digest()
    schema = snapshot_format.schema_of(snapshot.payload)
    return _encoder.encode(Manifest(schema, upload, snapshot.position, count, first, digest))


def decode_manifest(payload: bytes) -> Manifest | None:
    """Decode a manifest of this or an earlier version; None when it is invalid."""
    try:
        return _manifests.decode(payload)
    except msgspec.MsgspecError:
        pass
    try:
        older = _older_manifests.decode(payload)
    except msgspec.MsgspecError:
        return None
    return Manifest(OLDER_SCHEMA, *msgspec.structs.astuple(older))


class PieceCollector:
    """The pieces of one upload, in any order and between other messages."""

    def __init__(self, wanted: Manifest) -> None:
        self._wanted = wanted
        self._pieces: dict[int, bytes] = {}

    def add(self, payload: bytes) -> None:
        """Keep a message if it is a piece of the upload."""
        try:
            chunk = _chunks.decode(payload)
        except msgspec.MsgspecError:
            return
        if chunk.upload == self._wanted.upload and 0 <= chunk.index < self._wanted.count:
            self._pieces[chunk.index] = chunk.data

    def snapshot(self) -> Snapshot | None:
        """Return the snapshot, None when a piece is missing or changed."""
        wanted = self._wanted
        if len(self._pieces) != wanted.count:
            return None
        whole = b"".join(self._pieces[index] for index in range(wanted.count))
        if hashlib.sha256(whole).digest() != wanted.sha256:
            return None
        return Snapshot(wanted.position, whole)


class SnapshotStore:
    """The snapshots of one shard."""

    def __init__(self, connection: NatsConnection, names: StreamNames, *, consumers: bool) -> None:
        """Without `consumers`, read by single requests, for users that may make no consumer."""
        self._connection, self._names = connection, names
        self._stream = Stream(connection, names.snapshots, contiguous=False) if consumers else None

    async def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in pieces, its manifest last, and drop all but the newest two.

        Raises Unreachable, and Lost when the stream of snapshots is gone.
        """
        upload = uuid.uuid4().hex
        first, count = 0, 0
        for piece in cut(snapshot, upload):
            stored = await self._keep(self._names.chunk_subject, piece)
            first, count = first or stored, count + 1
        sealed = manifest(snapshot, upload, count, first)
        await self._keep(self._names.manifest_subject, sealed)
        await self._drop_old_snapshots()

    async def load(self) -> AsyncGenerator[Snapshot, None]:
        """Yield the complete snapshots of readable schemas, newest first.

        Raises Unreachable, and Lost when the stream of snapshots is gone.
        """
        seen, loaded = set[str](), 0
        for _ in range(LISTINGS_MAX):
            replaced = False
            for sequence, sealed in await self._newest_first(seen):
                seen.add(sealed.upload)
                if sealed.schema not in snapshot_format.READABLE:
                    _log.warning("snapshot_of_other_schema", **_described(sealed))
                    continue
                snapshot = await self._load(sealed, sequence)
                if snapshot is None:
                    _log.warning("snapshot_incomplete", **_described(sealed))
                    # Newer ones may have taken its place while it was fetched.
                    replaced = True
                    break
                yield snapshot
                loaded += 1
                if loaded == SNAPSHOTS_KEPT:
                    return
            if not replaced:
                return

    async def _newest_first(self, seen: Set[str]) -> list[tuple[int, Manifest]]:
        """Return the manifests of other uploads than these with their sequences, newest first."""
        stored = [pair for pair in await self._manifests() if pair[1].upload not in seen]
        return sorted(stored, key=lambda pair: pair[1].position, reverse=True)

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

    async def _load(self, wanted: Manifest, sequence: int) -> Snapshot | None:
        collector = PieceCollector(wanted)
        if self._stream is None:
            await self._request_pieces(collector, range(wanted.first, sequence))
        elif wanted.first < sequence:
            async with aclosing(
                push_consumer.read(self._stream, wanted.first, sequence)
            ) as batches:
                async for batch in batches:
                    for entry in batch:
                        collector.add(entry.payload)
        return collector.snapshot()

    async def _request_pieces(self, collector: PieceCollector, sequences: range) -> None:
        # One at a time, because a slow link fills with several: a request is repeated after a
        # second without an answer, and each repeated one sends the piece again.
        for at in sequences:
            stored = await jetstream_api.message(
                self._connection, self._names.snapshots, {"seq": at}
            )
            if stored is not None:
                collector.add(stored.data)


def _described(sealed: Manifest) -> dict[str, int]:
    return {"position": sealed.position, "schema": sealed.schema}

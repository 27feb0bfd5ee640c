"""Snapshot format: the state at a position as bytes, the same bytes for the same state.

A snapshot holds what cannot be derived: positions, accounts, lines, known namespaces with their
keys, objects and holds, nodes, placements and claims, and the ended uids. Charges and indexes are
computed when it is read. A snapshot contains its own hash. A damaged one is refused, and an older
one, or the whole log, takes its place.

A state without devices is written as schema 4, so that a version that was rolled back reads it.
"""

import hashlib
from collections.abc import Generator
from typing import Final

import msgspec

from ledger.core.model.state import State
from ledger.core.snapshot import image_reader, older_schema
from ledger.core.snapshot.image_encoder import ImageEncoder
from ledger.core.snapshot.snapshot_image import ImageWithDevices, SnapshotImage

WITHOUT_DEVICES: Final = 4
"""The schema of snapshots of states in which no object has devices."""

SCHEMA: Final = 5
"""The newest schema of the snapshots that are written."""

READABLE: Final = (older_schema.SCHEMA, WITHOUT_DEVICES, SCHEMA)
"""The schemas that this version reads."""


class InvalidSnapshot(Exception):
    """The snapshot is damaged or of another schema; use an older one or replay the log."""


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """The first element of a snapshot of any schema."""

    schema: int


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_envelopes: Final = msgspec.msgpack.Decoder(tuple[int, bytes, memoryview])
_images: Final[dict[int, msgspec.msgpack.Decoder[SnapshotImage]]] = {
    WITHOUT_DEVICES: msgspec.msgpack.Decoder(SnapshotImage),
    SCHEMA: msgspec.msgpack.Decoder(ImageWithDevices),
}
_marks: Final = msgspec.msgpack.Decoder(_Mark)


def encode(state: State) -> bytes:
    """Encode a state at the end of a record."""
    encoding = encode_in_pieces(state)
    while True:
        try:
            next(encoding)
        except StopIteration as end:
            return bytes(end.value)


def encode_in_pieces(state: State) -> Generator[None, None, bytes]:
    """Encode a state that does not change meanwhile; most steps take some milliseconds.

    The last steps pack, encode and hash all tables. With a million holds the longest takes 0.25 s.
    """
    assert not state.journal, "a state with events that may be taken back cannot be stored"
    position = state.position
    encoder = ImageEncoder(state)
    yield from encoder.pieces()
    assert state.position == position, "the state changed while it was encoded"
    image = encoder.image()
    yield
    body = _encoder.encode(image)
    yield
    digest = hashlib.sha256(body).digest()
    yield
    schema = SCHEMA if isinstance(image, ImageWithDevices) else WITHOUT_DEVICES
    return _encoder.encode((schema, digest, body))


def schema_of(payload: bytes) -> int:
    """Return the schema of a snapshot, the newest one if the bytes do not show it."""
    try:
        return _marks.decode(payload).schema
    except msgspec.MsgspecError:
        return SCHEMA


def decode(payload: bytes) -> State:
    """Decode a state. Raises InvalidSnapshot."""
    try:
        schema, digest, body = _envelopes.decode(payload)
        if schema not in READABLE:
            readable = ", ".join(map(str, READABLE))
            raise InvalidSnapshot(
                f"the snapshot has schema {schema}, this version reads {readable}"
            )
        if hashlib.sha256(body).digest() != digest:
            raise InvalidSnapshot("the snapshot does not match its own hash")
        if schema == older_schema.SCHEMA:
            return older_schema.decode(body)
        return image_reader.restore(_images[schema].decode(body))
    except (msgspec.MsgspecError, ValueError, LookupError) as error:
        raise InvalidSnapshot(f"the snapshot does not decode: {error}") from error

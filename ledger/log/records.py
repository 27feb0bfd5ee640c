"""Records: the content of one message of the log, and its seal against change.

A record holds all events that were decided together. On the wire it is the MessagePack array
`[schema, hash, body]`; `body` is a byte string that holds the array
`[position, time, writer, nonce, previous, group, items]` and `hash` is SHA-256 over one byte of
schema followed by the body. `previous` is the hash of the record before, 32 zero bytes at
position 1. Each item is `[event, postings]`. See docs/reference/log-format.md.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from ledger.core.evolve.evolver import InvariantError, Postings, evolve
from ledger.core.model.events import AnyEvent
from ledger.core.model.state import State
from ledger.log import record_schema
from ledger.log.log_port import Lost

T = TypeVar("T")

RECORD_BYTES_MAX: Final = 1_048_576
"""The stream's largest message."""

HEAD_BYTES_MAX: Final = 128
"""Most bytes of a record beside its items, the writer's name and the nonce."""


class NewerSchema(Exception):
    """The log holds a record of a newer schema, or an unknown event or cause."""


class Item(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event with its postings: `[line, delta, used after, …]`."""

    event: AnyEvent
    postings: Postings


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The body of a record; `time` in µs of Unix time, `group` the number of its commands."""

    position: int
    time: int
    writer: str
    nonce: str
    previous: bytes
    group: int
    items: list[Item]


class Link(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a record's body, which chains it to the record before."""

    position: int
    time: int
    writer: str
    nonce: str
    previous: bytes


class _Body(Link, frozen=True, array_like=True):
    """The body of a record whose items stay encoded."""

    group: int
    items: msgspec.Raw


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """The first element of a record of any schema."""

    schema: int


_encoder: Final = msgspec.msgpack.Encoder()
encode_item: Final[Callable[[Item], bytes]] = _encoder.encode
"""Returns the bytes of an item in its record."""

_envelopes: Final = msgspec.msgpack.Decoder(tuple[int, bytes, bytes])
_records: Final = msgspec.msgpack.Decoder(Record)
_links: Final = msgspec.msgpack.Decoder(Link)
_bodies: Final = msgspec.msgpack.Decoder(_Body)
_marks: Final = msgspec.msgpack.Decoder(_Mark)


def next_record(
    state: State,
    time: int,
    writer: str,
    nonce: str,
    *,
    group: int,
    items: list[Item],
    encoded: Sequence[bytes] | None = None,
    schema: int = 0,
) -> tuple[Record, bytes, bytes]:
    """Make the record that follows on a state, at a time in µs of Unix time, and seal it.

    `encoded` are the bytes of the items, None when they are not encoded yet. Without a schema it
    is sealed as `record_schema` describes. Returns `(record, payload, hash)`.
    """
    record = Record(state.position + 1, time, writer, nonce, state.hash, group, items)
    return record, *encode(record, schema or record_schema.to_seal(state.schema), encoded)


def encode(
    record: Record, schema: int = record_schema.SCHEMA, encoded: Sequence[bytes] | None = None
) -> tuple[bytes, bytes]:
    """Seal a record with a schema; see `next_record`. Returns `(payload, hash)`."""
    if encoded is None:
        body = _encoder.encode(record)
    else:
        *head, _ = msgspec.structs.astuple(record)
        body = _encoder.encode((*head, [*map(msgspec.Raw, encoded)]))
    digest = _digest(schema, body)
    return _encoder.encode((schema, digest, body)), digest


def schema_of(payload: bytes) -> int:
    """Return the schema of a record of any schema. Raises Lost."""
    return _decoded(_marks, payload).schema


def decode(payload: bytes) -> tuple[Record, bytes]:
    """Open a record and check its own hash. Returns `(record, hash)`.

    Raises NewerSchema, and Lost when the payload is not an intact record.
    """
    body, digest = _open(payload)
    try:
        return _records.decode(body), digest
    except msgspec.ValidationError as error:
        # The hash is right, so its writer wrote these bytes.
        position = _decoded(_links, body).position
        raise NewerSchema(
            f"position {position}: the record is intact and holds data that this gpuledger cannot"
            f" read ({error}): a newer version wrote it; upgrade gpuledger"
        ) from error
    except msgspec.MsgspecError as error:
        raise Lost(f"not an intact record: {error}") from error


def decode_link(payload: bytes) -> tuple[Link, bytes]:
    """Open only the link of a record to the one before. Returns `(link, hash)`; see `decode`."""
    body, digest = _open(payload)
    return _decoded(_links, body), digest


def encoded_items(payload: bytes) -> bytes:
    """Return the bytes of the array of items in a record that `decode` has accepted."""
    return bytes(_bodies.decode(_envelopes.decode(payload)[2]).items)


def _open(payload: bytes) -> tuple[bytes, bytes]:
    """Return `(body, hash)` of an intact record of a known schema."""
    schema = schema_of(payload)
    if schema > record_schema.SCHEMA:
        raise NewerSchema(
            f"the log holds records of schema {schema}, this gpuledger reads"
            f" {record_schema.SCHEMA}: upgrade it"
        )
    _, digest, body = _decoded(_envelopes, payload)
    if _digest(schema, body) != digest:
        raise Lost("a record's content does not match its own hash: it was changed")
    return body, digest


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes) -> T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Lost(f"not an intact record: {error}") from error


def fold(state: State, position: int, payload: bytes) -> Record:
    """Apply the record stored at a position to a state that is at the position before.

    Verifies position, own hash, chain and every balance. Raises Lost naming the position, and
    NewerSchema.
    """
    record, digest = check(state, position, payload)
    apply(state, record, position)
    state.seal(position, digest, record.time)
    state.schema = schema_of(payload)
    return record


def check(state: State, position: int, payload: bytes) -> tuple[Record, bytes]:
    """Open the record stored at a position and check that it follows from a state.

    Returns `(record, hash)`; applies nothing. Raises Lost naming the position, and NewerSchema.
    """
    try:
        record, digest = decode(payload)
    except Lost as error:
        raise Lost(f"position {position}: {error}") from error
    if position != state.position + 1 or record.position != position:
        raise Lost(
            f"position {position}: the record was written for position {record.position} and"
            f" follows {state.position}: a record is missing or moved"
        )
    if record.previous != state.hash:
        raise Lost(f"position {position}: the record does not follow from the one before it")
    if record.time < state.time:
        raise Lost(f"position {position}: the record's time goes back")
    return record, digest


def apply(state: State, record: Record, position: int) -> None:
    """Apply a record's events and compare every balance. Raises Lost."""
    time = record.time
    try:
        for item in record.items:
            if evolve(state, item.event, time) != item.postings:
                raise Lost(
                    f"position {position}: balances after {type(item.event).__name__} differ"
                    " from the ones recorded"
                )
    except (InvariantError, KeyError) as error:
        raise Lost(f"position {position}: {error}") from error


def _digest(schema: int, body: bytes) -> bytes:
    hasher = hashlib.sha256(bytes((schema,)))
    hasher.update(body)
    return hasher.digest()

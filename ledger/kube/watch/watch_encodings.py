"""Watch encodings: how the events of a watch are divided and decoded, as JSON or as protobuf.

JSON has one event in a line. Protobuf has the length of an event before it, in four bytes. The API
server chooses by the request's `Accept`, and names its choice in `Content-Type`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from ledger.kube.api.cluster_errors import Malformed
from ledger.kube.api.objects import ApiStatus, Bookmark, WatchEvent
from ledger.kube.api.protobuf_envelope import PROTOBUF, ObjectDecoder, event_decoder

EVENT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Longest event of a watch. etcd stores objects of 1.5 MiB; JSON makes them larger."""

ACCEPT_PROTOBUF: Final = f"{PROTOBUF};stream=watch, application/json"
"""Accepts protobuf, and JSON from servers and proxies that have no protobuf."""

_LENGTH_BYTES: Final = 4

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class EventSplitter(Protocol):
    """Divides the chunks of one watch into events."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the events that this chunk completes. Raises Malformed if one is too long."""
        ...


class WatchEncoding(msgspec.Struct, Generic[T], frozen=True):
    """The functions that read a watch. They raise msgspec.MsgspecError or UnicodeDecodeError.

    `splitter` begins a watch. `event` returns the type and the encoded object of an event, which
    `object` decodes, `mark` for the type BOOKMARK, and `error` for ERROR.
    """

    splitter: Callable[[], EventSplitter]
    event: Callable[[bytes], tuple[str, Any]]
    object: Callable[[Any], T]
    mark: Callable[[Any], Bookmark]
    error: Callable[[Any], ApiStatus]


def json_events(struct: type[T]) -> WatchEncoding[T]:
    """Return the encoding of a watch in JSON."""
    events = msgspec.json.Decoder(WatchEvent)

    def event(line: bytes) -> tuple[str, msgspec.Raw]:
        decoded = events.decode(line)
        return decoded.type, decoded.object

    return WatchEncoding(
        LineSplitter,
        event,
        msgspec.json.Decoder(struct).decode,
        msgspec.json.Decoder(Bookmark).decode,
        msgspec.json.Decoder(ApiStatus).decode,
    )


def protobuf_events(struct: type[S], kind: str) -> WatchEncoding[S]:
    """Return the encoding of a watch of a kind, such as `Pod`, in protobuf."""

    def event(frame: bytes) -> tuple[str, bytes]:
        decoded = event_decoder.decode(frame)
        return decoded.type, decoded.object.raw

    return WatchEncoding(
        FrameSplitter,
        event,
        ObjectDecoder(struct, kind).decode,
        ObjectDecoder(Bookmark, kind).decode,
        ObjectDecoder(ApiStatus, "Status").decode,
    )


class LineSplitter:
    """Splits chunks into lines, up to a maximum length."""

    def __init__(self, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._rest = bytearray()
        self._bytes_max = bytes_max

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that this chunk completes. Raises Malformed if one is too long."""
        searched = len(self._rest)
        self._rest += chunk
        start = 0
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            line = bytes(self._rest[start:end])
            start = end + 1
            if line.strip():
                yield line
        del self._rest[:start]
        if len(self._rest) > self._bytes_max:
            raise Malformed(f"a line of a watch is longer than {self._bytes_max} bytes")


class FrameSplitter:
    """Splits chunks into frames, each with its length before it, up to a maximum length."""

    def __init__(self, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._rest = bytearray()
        self._bytes_max = bytes_max

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the frames that this chunk completes. Raises Malformed if one is too long."""
        self._rest += chunk
        start = 0
        while len(self._rest) >= (begin := start + _LENGTH_BYTES):
            length = int.from_bytes(self._rest[start:begin], "big")
            if length > self._bytes_max:
                raise Malformed(
                    f"a frame of a watch has {length} bytes, more than {self._bytes_max}"
                )
            if len(self._rest) < begin + length:
                break
            yield bytes(self._rest[begin : begin + length])
            start = begin + length
        del self._rest[:start]

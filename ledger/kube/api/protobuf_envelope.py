"""Protobuf envelope: what Kubernetes puts around an object, alone or as an event of a watch.

An object has the prefix `k8s`, a zero byte and a message with the object's kind around it.
"""

from typing import Final, Generic, TypeVar

import msgspec

from ledger.kube.api.protobuf_fields import NUMBERS, Number
from ledger.kube.api.protobuf_structs import StructDecoder

PREFIX: Final = b"k8s\0"
"""The first bytes of each object in protobuf; no JSON text begins so."""

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

T = TypeVar("T", bound=msgspec.Struct)


class TypeMeta(msgspec.Struct, frozen=True, gc=False):
    """The kind of an enclosed object, such as `Pod`."""

    kind: str = ""


class ObjectEnvelope(msgspec.Struct, frozen=True, gc=False):
    """An object as its kind and its bytes (Unknown in Kubernetes)."""

    type_meta: TypeMeta = TypeMeta()
    raw: bytes = b""


class EnclosedObject(msgspec.Struct, frozen=True, gc=False):
    """The object of an event, with prefix and envelope (RawExtension in Kubernetes)."""

    raw: bytes = b""


class FramedEvent(msgspec.Struct, frozen=True, gc=False):
    """One frame of a watch, as `objects.WatchEvent` is one line."""

    type: str = ""
    object: EnclosedObject = EnclosedObject()


_NUMBERS: Final[dict[type[msgspec.Struct], dict[str, Number]]] = {
    TypeMeta: {"kind": 2},
    ObjectEnvelope: {"type_meta": 1, "raw": 2},
    EnclosedObject: {"raw": 1},
    FramedEvent: {"type": 1, "object": 2},
}
_envelopes: Final = StructDecoder(ObjectEnvelope, _NUMBERS)

event_decoder: Final = StructDecoder(FramedEvent, _NUMBERS)
"""Decodes the frames of a watch."""


class ObjectDecoder(Generic[T]):
    """Decodes objects of one kind, each with its prefix and envelope."""

    def __init__(self, struct: type[T], kind: str) -> None:
        """`kind` is the name of the kind in Kubernetes, such as `Pod`."""
        self._objects = StructDecoder(struct, NUMBERS)
        self._kind = kind

    def decode(self, data: bytes) -> T:
        """Return the object. Raises msgspec.DecodeError, as a decoder of JSON does."""
        if not data.startswith(PREFIX):
            raise msgspec.DecodeError(f"{data[: len(PREFIX)]!r} does not begin protobuf")
        envelope = _envelopes.decode(data[len(PREFIX) :])
        if envelope.type_meta.kind != self._kind:
            raise msgspec.DecodeError(f"a {envelope.type_meta.kind!r} instead of a {self._kind}")
        return self._objects.decode(envelope.raw)

"""Objects in protobuf, written field by field without the library that the product reads them with.

The field numbers are those of `ledger.kube.api.protobuf_fields`, the types those of the structs.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from ledger.kube.api.protobuf_envelope import PREFIX
from ledger.kube.api.protobuf_fields import NUMBERS

_VARINT, _BYTES = 0, 2
_64_BITS: Final = 2**64


def frame(kind: str, enclosed_object: bytes) -> bytes:
    """Return one event of a watch."""
    event = _bytes(1, kind.encode()) + _bytes(2, _bytes(1, enclosed_object))
    return len(event).to_bytes(4, "big") + event


def enclosed(content: msgspec.Struct, kind: str) -> bytes:
    """Return an object with prefix and envelope."""
    meta = _bytes(1, b"v1") + _bytes(2, kind.encode())
    ends = _bytes(3, b"") + _bytes(4, b"")
    return PREFIX + _bytes(1, meta) + _bytes(2, encoded(content)) + ends


def encoded(content: msgspec.Struct) -> bytes:
    """Return the message of a struct; fields with the struct's defaults are left out if None."""
    message = b""
    for field in msgspec.structs.fields(type(content)):
        number = NUMBERS[type(content)][field.encode_name]
        number, inner = number if isinstance(number, tuple) else (number, 0)
        value = getattr(content, field.name)
        if isinstance(value, list):
            items = map(_content, value)
            message += b"".join(
                _bytes(number, _bytes(inner, item) if inner else item) for item in items
            )
        elif isinstance(value, dict):
            quantities = field.encode_name in ("limits", "requests", "overhead")
            for key, text in value.items():
                of_key = _content(text)
                entry = _bytes(1, of_key) if quantities else of_key
                message += _bytes(number, _bytes(1, key.encode()) + _bytes(2, entry))
        elif isinstance(value, int):
            message += _varint(number << 3 | _VARINT) + _varint(value % _64_BITS)
        elif value is not None:
            message += _bytes(number, _content(value))
    return message


def _content(value: Any) -> bytes:
    if isinstance(value, msgspec.Struct):
        return encoded(value)
    if isinstance(value, datetime):
        seconds = int(value.timestamp()) % _64_BITS
        return _varint(1 << 3) + _varint(seconds) + _varint(2 << 3) + _varint(0)
    return str(value).encode()


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low = []
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*low, value])

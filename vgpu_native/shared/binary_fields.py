"""Binary fields: reading and writing the fields of a layout as integers and texts.

All fields are little-endian, because every machine with an NVIDIA GPU is.
"""

import struct
from typing import Final

from vgpu_native.shared.layout import Field

_CODES: Final = {4: "<I", 8: "<Q"}


class RecordFields:
    """The fields of a layout's record that begins at offset `base` of some bytes."""

    def __init__(self, content: bytes, base: int = 0) -> None:
        """Read from bytes, which must be long enough for every field that is read."""
        self._content, self._base = content, base

    def number(self, field: Field, index: int = 0, *, signed: bool = False) -> int:
        """Return one value of a field with values of 4 or 8 bytes."""
        code = _CODES[field.width].lower() if signed else _CODES[field.width]
        value: int = struct.unpack_from(code, self._content, self._base + place(field, index))[0]
        return value

    def numbers(self, field: Field) -> tuple[int, ...]:
        """Return all values of a field of contiguous 8-byte values, at once."""
        start = self._base + place(field)
        return struct.unpack_from(f"<{field.count}Q", self._content, start)

    def text(self, field: Field, index: int = 0) -> str:
        """Return a zero-terminated text; empty if it is not visible ASCII."""
        start = self._base + place(field, index)
        encoded = self._content[start : start + field.width].split(b"\0", 1)[0]
        return encoded.decode() if all(33 <= byte <= 126 for byte in encoded) else ""

    def at(self, field: Field, index: int) -> "RecordFields":
        """Return one of a field's values as a record."""
        return RecordFields(self._content, self._base + place(field, index))


def place(field: Field, index: int = 0) -> int:
    """Return the offset of one of a field's values. Raises IndexError beyond the last."""
    if not 0 <= index < field.count:
        raise IndexError(f"field {field.name} has {field.count} values, not one at {index}")
    return field.offset + (field.step or field.width) * index


def put_number(content: bytearray, field: Field, number: int, index: int = 0) -> None:
    """Write the value of a field of 4 or 8 bytes."""
    struct.pack_into(_CODES[field.width], content, place(field, index), number)


def put_text(content: bytearray, field: Field, text: str, index: int = 0) -> None:
    """Write a text and its terminating zero. Raises ValueError if it does not fit."""
    encoded = text.encode("ascii")
    if len(encoded) >= field.width:
        raise ValueError(
            f"{field.name} {text!r} has {len(encoded)} bytes, room is for {field.width - 1}"
        )
    start = place(field, index)
    content[start : start + field.width] = encoded.ljust(field.width, b"\0")

"""Protobuf structs: decoders of protobuf whose schema is a msgspec struct and a table of numbers.

The struct that a decoder of JSON fills decides also what is read here, so there is one schema. An
absent field has the struct's default, as in JSON, where Kubernetes leaves out what is empty.
The library `protobuf` parses the bytes; it keeps fields without a number unread.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError

from ledger.kube.api.protobuf_fields import Number

T = TypeVar("T", bound=msgspec.Struct)
Read = Callable[[Any], Any]
"""Returns the value of a struct's field from that of a message's field."""

Numbers = Mapping[type[msgspec.Struct], Mapping[str, Number]]

_PACKAGE: Final = "gpuledger"
_QUANTITY: Final = "Quantity"
_TIME: Final = "Time"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCALARS: Final[Mapping[Any, int]] = {
    str: FieldDescriptorProto.TYPE_STRING,
    bytes: FieldDescriptorProto.TYPE_BYTES,
    bool: FieldDescriptorProto.TYPE_BOOL,
    int: FieldDescriptorProto.TYPE_INT64,  # an int32 has the same bytes
}


class StructDecoder(Generic[T]):
    """Decodes messages into structs of one type."""

    def __init__(self, struct: type[T], numbers: Numbers) -> None:
        """`numbers` has the fields of the struct, and of all structs in it, by their JSON names.

        Raises KeyError for a field without a number.
        """
        schema = _Schema(numbers)
        self._read: Callable[[Any], T] = schema.reader(struct)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(schema.file)
        name = pool.FindMessageTypeByName(f"{_PACKAGE}.{struct.__name__}")
        self._parse = message_factory.GetMessageClass(name).FromString

    def decode(self, data: bytes) -> T:
        """Return the struct of a message. Raises msgspec.DecodeError, as a decoder of JSON does."""
        try:
            return self._read(self._parse(data))
        except (DecodeError, UnicodeDecodeError, OverflowError) as error:
            raise msgspec.DecodeError(f"invalid protobuf: {error}") from error


class _Schema:
    """The message types of structs, and the functions that read structs from such messages."""

    def __init__(self, numbers: Numbers) -> None:
        self.file = descriptor_pb2.FileDescriptorProto(
            name="structs.proto", package=_PACKAGE, syntax="proto2"
        )
        self._numbers = numbers
        self._readers: dict[type[msgspec.Struct], Read] = {}
        _add(self._message(_QUANTITY), "string", 1, str)
        _add(self._message(_TIME), "seconds", 1, int)

    def reader(self, struct: type[msgspec.Struct]) -> Read:
        """Describe a struct, and return the function that reads it from a message."""
        if struct not in self._readers:
            message = self._message(struct.__name__)
            fields = {}
            for field in msgspec.structs.fields(struct):
                number = self._numbers[struct][field.encode_name]
                number, inner = number if isinstance(number, tuple) else (number, 0)
                read = self._field(message, field.encode_name, number, _present(field.type), inner)
                fields[number] = field.name, read
            self._readers[struct] = _structs(struct, fields)
        return self._readers[struct]

    def _field(
        self, message: DescriptorProto, name: str, number: int, type_: Any, inner: int
    ) -> Read | None:
        """Add a field to a message and return the function that reads it, None if unchanged."""
        kind, *rest = (get_origin(type_) or type_, *get_args(type_))
        if kind is dict:
            return self._map(message, name, number, rest[1])
        if kind is list:
            return self._list(message, name, number, rest[0], inner)
        if kind in _SCALARS:
            _add(message, name, number, kind)
            return None
        if kind is datetime:
            _add(message, name, number, _TIME)
            return _time
        _add(message, name, number, kind.__name__)
        return self.reader(kind)

    def _list(
        self, message: DescriptorProto, name: str, number: int, item: Any, inner: int
    ) -> Read:
        """Add a list of texts, or of structs, which may be field `inner` of the elements."""
        if item is str:
            _add(message, name, number, str, repeated=True)
            return list
        read = self.reader(item)
        if not inner:
            _add(message, name, number, item.__name__, repeated=True)
            return lambda elements: list(map(read, elements))
        element = f"{item.__name__}Element"
        _add(self._message(element), "content", inner, item.__name__)
        _add(message, name, number, element, repeated=True)
        return lambda elements: [read(element.content) for element in elements]

    def _map(self, message: DescriptorProto, name: str, number: int, value: Any) -> Read:
        """Add a map from texts to texts, or to quantities."""
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add(entry, "key", 1, str)
        _add(entry, "value", 2, str if value is str else _QUANTITY)
        _add(message, name, number, f"{message.name}.{entry.name}", repeated=True)
        return _texts if value is str else _quantities

    def _message(self, name: str) -> DescriptorProto:
        return self.file.message_type.add(name=name)


def _add(
    message: DescriptorProto, name: str, number: int, type_: Any, *, repeated: bool = False
) -> None:
    """Add a field of a scalar type, or of the message type with that name."""
    field = message.field.add(name=name, number=number)
    field.label = (
        FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    )
    field.type = _SCALARS.get(type_, FieldDescriptorProto.TYPE_MESSAGE)
    if isinstance(type_, str):
        field.type_name = f".{_PACKAGE}.{type_}"


def _present(type_: Any) -> Any:
    """Return the type of a field that is there; quantities of JSON may also be integers."""
    present = [part for part in get_args(type_) if part is not NoneType]
    return present[0] if isinstance(type_, UnionType) else type_


def _structs(
    struct: type[msgspec.Struct], fields: Mapping[int, tuple[str, Read | None]]
) -> Callable[[Any], msgspec.Struct]:
    """Return the function from a message to a struct; `fields` are named by their numbers."""

    def read(message: Any) -> msgspec.Struct:
        values = {}
        for descriptor, value in message.ListFields():
            name, convert = fields[descriptor.number]
            values[name] = value if convert is None else convert(value)
        return struct(**values)

    return read


def _texts(entries: Mapping[str, str]) -> dict[str, str]:
    # `dict(entries)` and `items()` take two to three times as long with maps of protobuf.
    return {name: entries[name] for name in entries}


def _quantities(entries: Mapping[str, Any]) -> dict[str, str]:
    return {name: entries[name].string for name in entries}


def _time(time: Any) -> datetime | None:
    """Return a time in whole seconds, as Kubernetes writes it in JSON; None for Go's zero time."""
    return _EPOCH + timedelta(seconds=time.seconds) if time.HasField("seconds") else None

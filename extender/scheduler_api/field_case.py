"""Field case: JSON field names in any case of letters, as Go's decoder accepts them.

Only for callers that do not write names as kube-scheduler does: the body is decoded to plain values
first, which costs far more than decoding it to its type.
"""

from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

KINDS_MAX: Final = 64
"""Structs whose spelling is cached; requests consist of fewer."""

Spelling = dict[str, tuple[str, inspect.Type]]
"""By a field's name in lower case: its spelling and its type."""


def respelled(value: Any, kind: type) -> Any:
    """Return a JSON value with the names of fields as `kind` spells them, at every depth.

    Of names that differ only in the case of their letters, the last one counts, as in Go.
    """
    return _respelled(value, inspect.type_info(kind))


def _respelled(value: Any, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.UnionType):
        return _respelled(value, _some(kind)) if value is not None else None
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        return _fields(value, _spelling(kind.cls))
    if isinstance(kind, inspect.ListType) and isinstance(value, list):
        return [_respelled(item, kind.item_type) for item in value]
    if isinstance(kind, inspect.DictType) and isinstance(value, dict):
        return {name: _respelled(item, kind.value_type) for name, item in value.items()}
    if isinstance(kind, inspect.RawType):
        return msgspec.Raw(msgspec.json.encode(value))
    return value


def _fields(value: dict[str, Any], spelling: Spelling) -> dict[str, Any]:
    fields = {}
    for name, item in value.items():
        spelt, kind = spelling.get(name.lower(), (name, _ANY))
        fields[spelt] = _respelled(item, kind)
    return fields


def _some(kind: inspect.UnionType) -> inspect.Type:
    """Return the type of an optional field that is present."""
    return next((member for member in kind.types if not isinstance(member, inspect.NoneType)), _ANY)


@lru_cache(KINDS_MAX)
def _spelling(kind: type) -> Spelling:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType), f"{kind} is not a struct"
    return {field.encode_name.lower(): (field.encode_name, field.type) for field in info.fields}


_ANY: Final = inspect.AnyType()

"""Record schema: the schema with which a writer seals a record, and the content that it may have.

A writer seals with the schema of the log's last record; an empty log gets the newest. So replicas
of two versions write one log, and a version that was rolled back still reads it, because nothing
newer is written until `gpuledger log raise-schema` appends the first record of the newest schema.

A new version may add to the content of records:

* a field at the end of an event, or of a struct in one, with a default that means the same as its
  absence;
* an event, or a value of a field of text or of a number, such as a cause.

Each needs a new `SCHEMA` and a line in `SINCE`. `decide` leaves it out while `state.schema` is
older. A reader of the older schema would ignore a field or take a value for an ordinary one, and
fold another state than the writer. So a batch with such content is refused as a defect, before it
is stored. Readers of an older schema ignore fields at the end that have their defaults. All other
changes, for example another meaning of an existing field or a new form of the text in one, cannot
be sealed with an older schema: they raise `OLDEST_SEALED` too, and the first replica of the new
version then stops the older ones. Schema 4 was such a change. Schema 5 adds the devices that
resource claims gave to objects, and two causes.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, get_args, get_type_hints

import msgspec

SCHEMA: Final = 5
"""The newest record schema. Older schemas are read; a newer one is refused."""

OLDEST_SEALED: Final = 4
"""The oldest schema with which records are still sealed."""

SINCE: Final[dict[str, int]] = {
    "Device": 5,
    "Committed.devices": 5,
    "Observed.devices": 5,
} | {
    f"{event}.cause={cause}": 5
    for event in ("Observed", "Placed", "Released", "Unplaced", "Withdrawn")
    for cause in ("allocated", "unallocated")
}
"""Names of content with the schema that brought each; only what `OLDEST_SEALED` lacks.

A name is that of a struct (`Released`), of its field (`Card.mode`), or of a value of that field
(`Released.cause=elapsed`). A struct is an event or lies in one.
"""


class NewerContent(Exception):
    """A decision has content that the log's schema does not have yet: a defect of `decide`."""


def to_seal(last: int) -> int:
    """Return the schema of the record after one of schema `last`, 0 for an empty log."""
    return max(last, OLDEST_SEALED) if last else SCHEMA


def must_fit(events: Iterable[msgspec.Struct], schema: int) -> None:
    """Raise NewerContent if an event has content that is newer than a schema."""
    newer = {name for name, brought in SINCE.items() if brought > schema}
    kinds = {name.partition(".")[0] for name in newer}
    changed = tuple(event for event in events if not kinds.isdisjoint(_structs(type(event))))
    for name in _content(changed):
        if name in newer:
            raise NewerContent(
                f"{name} needs schema {SINCE[name]}, the log has {schema}: raise it by"
                " `gpuledger log raise-schema` when all replicas are upgraded"
            )


@cache
def _structs(annotation: object) -> frozenset[str]:
    """Return the names of all structs that a value of a type may be or hold."""
    names = frozenset[str]().union(*map(_structs, get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        held = map(_structs, get_type_hints(annotation).values())
        return names.union({annotation.__name__}, *held)
    return names


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    """Return name and default of each field of a struct; NODEFAULT if it has none."""
    return tuple((field.name, _default(field)) for field in msgspec.structs.fields(kind))


def _content(value: object) -> Iterator[str]:
    """Yield the names of all structs, given fields and values in a value, as `SINCE` has them."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from _content(each)
    elif isinstance(value, msgspec.Struct):
        yield type(value).__name__
        for field, default in _fields(type(value)):
            held = getattr(value, field)
            if held == default:
                continue
            name = f"{type(value).__name__}.{field}"
            yield name
            if isinstance(held, str | int):
                yield f"{name}={held}"
            yield from _content(held)


def _default(field: msgspec.structs.FieldInfo) -> object:
    """Return the default of a field, NODEFAULT if it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default

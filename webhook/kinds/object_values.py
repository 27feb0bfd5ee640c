"""Object values: reads of the fields of any object, with an error that names a wrong type."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.quoting import shown

Json = Any
"""Any value of a JSON document."""

NUMBER_MAX: Final = 2**63
"""Largest absolute value of a number in an object."""


class InvalidObject(Exception):
    """An object is invalid; `denial` names the field, its value and the remedy."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(denial.message)
        self.denial = denial


def invalid_object(
    message: str, field: str, value: str, remedy: str, reason: Reason
) -> InvalidObject:
    """Return the error of an invalid field."""
    return InvalidObject(
        Denial(reason, message, transient=False, remedy=remedy, field=field, value=value)
    )


def wrong_type(
    field: str, value: Json, wanted: str, reason: Reason = Reason.INVALID_REVIEW
) -> InvalidObject:
    """Return the error of a value that is not of the wanted type, such as `a list`."""
    given = brief(value)
    return invalid_object(
        f"{field} is {given} and not {wanted}", field, given, f"Write {wanted} at {field}", reason
    )


class ExpressionScope(msgspec.Struct, frozen=True, gc=False):
    """The values by name that an expression reads, and the field that `item` means."""

    names: Mapping[str, Json]
    item: str = ""

    def naming(self, field: str) -> str:
        """Return the object's field for a path of an expression, with `item` replaced."""
        head, dot, rest = field.partition(".")
        return f"{self.item}{dot}{rest}" if head == "item" else field


def step_into(value: Json, step: str | int, field: str) -> Json:
    """Return a member of an object or an element of a list, None if it does not exist.

    `field` names the value. Raises InvalidObject if the value has another type.
    """
    if value is None:
        return None
    if isinstance(step, int):
        if isinstance(value, list):
            return value[step] if -len(value) <= step < len(value) else None
        raise wrong_type(field, value, "a list")
    if isinstance(value, dict):
        return value.get(step)
    raise wrong_type(field, value, "an object")


def brief(value: Json) -> str:
    """Return a value as messages quote it; of an object or a list only its type."""
    if value is None:
        return "missing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown(value) if isinstance(value, int | str) else shown(repr(value))

"""Query parameters: parsers, whose errors name the parameter, the value and the valid values."""

from enum import StrEnum
from typing import Final, TypeVar

from starlette.datastructures import QueryParams

from ledger.kube.api.quoting import shown
from projections.queries.moments import InvalidMoment, Moment, parse, resolve
from projections.queries.query_scope import QueryScope
from projections.store.readers import ProjectionView

LIMIT_DEFAULT: Final = 500
LIMIT_MAX: Final = 5_000
"""Most rows of an answer, also if a request asks for more."""

Choice = TypeVar("Choice", bound=StrEnum)

_DIGITS_MAX: Final = 15
TEXT_BYTES_MAX: Final = 600
"""Longer than any `cluster/namespace/key`, which are ASCII."""

_CONTROL: Final = frozenset(map(chr, (*range(32), 127)))


class InvalidParameter(ValueError):
    """A query parameter is invalid. A long `value` is cut, because a client chooses its length."""

    def __init__(self, parameter: str, value: str, *, message: str) -> None:
        value = shown(value)
        super().__init__(f"{parameter}={value}: {message}")
        self.parameter, self.value, self.message = parameter, value, message


def scope(query: QueryParams) -> QueryScope:
    """Read `namespace` and `cluster`. Raises InvalidParameter."""
    return QueryScope(text(query, "namespace"), text(query, "cluster"))


def text(query: QueryParams, name: str) -> str:
    """Read a name or the place of the next page, empty when it is not given.

    It has at most `TEXT_BYTES_MAX` bytes of UTF-8 and no control characters, so at most twice as
    many bytes as JSON. Raises InvalidParameter.
    """
    value = query.get(name, "")
    if (size := len(value.encode())) > TEXT_BYTES_MAX:
        raise InvalidParameter(
            name,
            value,
            message=f"it has {size} bytes of UTF-8, the most is {TEXT_BYTES_MAX}; give a name",
        )
    if not _CONTROL.isdisjoint(value):
        raise InvalidParameter(
            name, ascii(value), message="it has a control character, which no name has; give a name"
        )
    return value


def moment(query: QueryParams, name: str) -> Moment | None:
    """Read a position or time, None when it is not given. Raises InvalidParameter."""
    value = query.get(name)
    if value is None:
        return None
    try:
        return parse(value)
    except InvalidMoment as error:
        raise InvalidParameter(name, value, message=str(error)) from error


async def position(view: ProjectionView, query: QueryParams, name: str) -> int:
    """Read a position or time and return its position, the last one when it is not given. Raises
    InvalidParameter.
    """
    try:
        return await resolve(view, moment(query, name))
    except InvalidMoment as error:
        raise InvalidParameter(name, query[name], message=str(error)) from error


def choice(query: QueryParams, name: str, choices: type[Choice]) -> Choice | None:
    """Read one of the words of an enumeration, None when not given. Raises InvalidParameter."""
    value = query.get(name)
    if value is None:
        return None
    try:
        return choices(value)
    except ValueError:
        words = " or ".join(choices)
        raise InvalidParameter(name, value, message=f"it is none of {words}") from None


def flag(query: QueryParams, name: str) -> bool:
    """Read `true` or `false`, false when it is not given. Raises InvalidParameter."""
    value = query.get(name, "false")
    if value not in {"true", "false"}:
        raise InvalidParameter(name, value, message="it is neither true nor false")
    return value == "true"


def number(query: QueryParams, name: str, default: int, highest: int) -> int:
    """Read a number from 0 to `highest`. Raises InvalidParameter."""
    value = query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
        raise InvalidParameter(name, value, message="it is not a whole number from 0 on")
    if int(value) > highest:
        raise InvalidParameter(name, value, message=f"the most is {highest}")
    return int(value)


def limit(query: QueryParams) -> int:
    """Read `limit`, the largest number of rows of an answer. Raises InvalidParameter."""
    value = number(query, "limit", LIMIT_DEFAULT, LIMIT_MAX)
    if value == 0:
        raise InvalidParameter("limit", "0", message=f"it is 1 to {LIMIT_MAX}")
    return value


def place(query: QueryParams, name: str) -> tuple[int, int] | None:
    """Read `POSITION.NUMBER`, None when it is not given. Raises InvalidParameter."""
    value = query.get(name)
    if value is None:
        return None
    position, dot, index = value.partition(".")
    parts = (position, index)
    if not dot or not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidParameter(
            name, value, message="it is not POSITION.NUMBER as an answer gave it"
        )
    if max(map(len, parts)) > _DIGITS_MAX:
        raise InvalidParameter(name, value, message="it is longer than any place in the log")
    return int(position), int(index)

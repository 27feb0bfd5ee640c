"""Expression functions: `default`, `has`, `min`, `max`, `portion`, `indexes` and `condition`."""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledger.core.model.denials import Reason
from webhook.kinds.object_values import NUMBER_MAX, ExpressionScope, InvalidObject, Json, wrong_type

ARGUMENTS_MAX: Final = 8
"""Maximum number of arguments of `min` and `max`."""

_PERCENT: Final = re.compile(r"([0-9]{1,6})%")
_INDEXES: Final = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?)*")


class ExpressionTerm(NamedTuple):
    """A compiled part of an expression: the function that reads its value, and the field for
    errors."""

    field: str
    read: Callable[[ExpressionScope], Json]


class ExpressionFunction(NamedTuple):
    """A function: its usage text, the least and most arguments, and the implementation."""

    usage: str
    arguments: tuple[int, int]
    call: Callable[[ExpressionScope, Sequence[ExpressionTerm]], Json]


def number_of(term: ExpressionTerm, scope: ExpressionScope) -> int:
    """Return a term as a whole number. Raises InvalidObject."""
    value = term.read(scope)
    if type(value) is int and abs(value) <= NUMBER_MAX:
        return value
    raise _no_count(term, scope, value, "a whole number")


def truth_of(term: ExpressionTerm, scope: ExpressionScope) -> bool:
    """Return a term as a condition; a missing value is false. Raises InvalidObject."""
    value = term.read(scope)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _no_count(term, scope, value, "true or false")


def _no_count(
    term: ExpressionTerm, scope: ExpressionScope, value: Json, wanted: str
) -> InvalidObject:
    return wrong_type(scope.naming(term.field), value, wanted, Reason.INVALID_COUNT)


def _default(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> Json:
    value = terms[0].read(scope)
    return terms[1].read(scope) if value is None else value


def _has(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> bool:
    return terms[0].read(scope) is not None


def _condition(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> bool:
    """Return whether a condition of the status is true; a status of another shape has none."""
    wanted = terms[0].read(scope)
    status = scope.names.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return isinstance(conditions, list) and any(
        isinstance(condition, dict)
        and condition.get("type") == wanted
        and condition.get("status") == "True"
        for condition in conditions
    )


def _indexes(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> int:
    """Count the indexes of a text such as `1,3-5,7`, as Jobs write them."""
    value = terms[0].read(scope)
    if value is None or value == "":
        return 0
    if not isinstance(value, str) or not _INDEXES.fullmatch(value):
        raise _no_count(terms[0], scope, value, "a list of indexes such as 1,3-5")
    return sum(_length(*part.partition("-")[::2]) for part in value.split(","))


def _length(first: str, last: str) -> int:
    return max(int(last or first) - int(first) + 1, 0)


def _portion(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> int:
    part, whole = _part_of(scope, terms)
    return -(-part * whole // 100)


def _portion_down(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> int:
    part, whole = _part_of(scope, terms)
    return part * whole // 100


def _part_of(scope: ExpressionScope, terms: Sequence[ExpressionTerm]) -> tuple[int, int]:
    """Return `(percent, whole)` for the arguments of `portion`; a number is 100 % of itself."""
    term, of = terms
    value = term.read(scope)
    if type(value) is int:
        return 100, number_of(term, scope)
    form = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if form is not None:
        return int(form[1]), number_of(of, scope)
    raise _no_count(term, scope, value, "a whole number or a percentage")


FUNCTIONS: Final = {
    "default": ExpressionFunction("default(path, instead)", (2, 2), _default),
    "has": ExpressionFunction("has(path)", (1, 1), _has),
    "min": ExpressionFunction(
        "min(a, b)",
        (2, ARGUMENTS_MAX),
        lambda scope, terms: min(number_of(term, scope) for term in terms),
    ),
    "max": ExpressionFunction(
        "max(a, b)",
        (2, ARGUMENTS_MAX),
        lambda scope, terms: max(number_of(term, scope) for term in terms),
    ),
    "portion": ExpressionFunction("portion(number or percentage, of)", (2, 2), _portion),
    "portion_down": ExpressionFunction(
        "portion_down(number or percentage, of)", (2, 2), _portion_down
    ),
    "indexes": ExpressionFunction("indexes(path)", (1, 1), _indexes),
    "condition": ExpressionFunction("condition('Type')", (1, 1), _condition),
}
"""By name. `portion` rounds up, as Kubernetes rounds a surge; `portion_down` rounds down."""

"""The functions of expressions, each with how it is written."""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledger.core.model.denials import Reason
from webhook.kinds.values import NUMBER_MAX, Json, Scope, Unfit, unlike

ARGUMENTS_MAX: Final = 8
"""Most arguments of `min` and `max`."""

_PERCENT: Final = re.compile(r"([0-9]{1,6})%")
_INDEXES: Final = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?)*")


class Term(NamedTuple):
    """A compiled part of an expression: what to read, and the field it is about."""

    field: str
    read: Callable[[Scope], Json]


class Function(NamedTuple):
    """A function: how it is written, how many arguments it takes, and what it does."""

    usage: str
    arguments: tuple[int, int]
    call: Callable[[Scope, Sequence[Term]], Json]


def number_of(term: Term, scope: Scope) -> int:
    """Return a term as a whole number. Raises Unfit."""
    value = term.read(scope)
    if type(value) is int and abs(value) <= NUMBER_MAX:
        return value
    raise _no_count(term, scope, value, "a whole number")


def truth_of(term: Term, scope: Scope) -> bool:
    """Return a term as a condition; what is missing is false. Raises Unfit."""
    value = term.read(scope)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _no_count(term, scope, value, "true or false")


def _no_count(term: Term, scope: Scope, value: Json, wanted: str) -> Unfit:
    return unlike(scope.naming(term.field), value, wanted, Reason.INVALID_COUNT)


def _default(scope: Scope, terms: Sequence[Term]) -> Json:
    value = terms[0].read(scope)
    return terms[1].read(scope) if value is None else value


def _has(scope: Scope, terms: Sequence[Term]) -> bool:
    return terms[0].read(scope) is not None


def _condition(scope: Scope, terms: Sequence[Term]) -> bool:
    """Tell whether a condition of the status is true; a status of any other shape has none."""
    wanted = terms[0].read(scope)
    status = scope.names.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    return isinstance(found, list) and any(
        isinstance(one, dict) and one.get("type") == wanted and one.get("status") == "True"
        for one in found
    )


def _indexes(scope: Scope, terms: Sequence[Term]) -> int:
    """Count the indexes of a text such as `1,3-5,7`, as Jobs write them."""
    value = terms[0].read(scope)
    if value is None or value == "":
        return 0
    if not isinstance(value, str) or not _INDEXES.fullmatch(value):
        raise _no_count(terms[0], scope, value, "a list of indexes such as 1,3-5")
    return sum(_length(*part.partition("-")[::2]) for part in value.split(","))


def _length(first: str, last: str) -> int:
    return max(int(last or first) - int(first) + 1, 0)


def _portion(scope: Scope, terms: Sequence[Term]) -> int:
    part, whole = _part_of(scope, terms)
    return -(-part * whole // 100)


def _portion_down(scope: Scope, terms: Sequence[Term]) -> int:
    part, whole = _part_of(scope, terms)
    return part * whole // 100


def _part_of(scope: Scope, terms: Sequence[Term]) -> tuple[int, int]:
    """Return `(percent, whole)` of an int-or-percentage and what it is a part of."""
    term, of = terms
    value = term.read(scope)
    if type(value) is int:
        return 100, number_of(term, scope)
    form = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if form is not None:
        return int(form[1]), number_of(of, scope)
    raise _no_count(term, scope, value, "a whole number or a percentage")


FUNCTIONS: Final = {
    "default": Function("default(path, instead)", (2, 2), _default),
    "has": Function("has(path)", (1, 1), _has),
    "min": Function(
        "min(a, b)",
        (2, ARGUMENTS_MAX),
        lambda scope, terms: min(number_of(term, scope) for term in terms),
    ),
    "max": Function(
        "max(a, b)",
        (2, ARGUMENTS_MAX),
        lambda scope, terms: max(number_of(term, scope) for term in terms),
    ),
    "portion": Function("portion(number or percentage, of)", (2, 2), _portion),
    "portion_down": Function("portion_down(number or percentage, of)", (2, 2), _portion_down),
    "indexes": Function("indexes(path)", (1, 1), _indexes),
    "condition": Function("condition('Type')", (1, 1), _condition),
}
"""By name. `portion` rounds up, as Kubernetes does for what comes on top; `portion_down` down."""

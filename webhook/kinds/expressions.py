"""Expressions: how many pods, and whether it is suspended, as one line over an object's fields.

The language is a few words of Python: whole numbers, texts, `true`, `false`, paths, `+ - *`,
comparisons, `and`, `or`, `not`, `a if b else c`, and the functions in `functions`. A path begins
at `metadata`, `spec`, `status`, at `item` or `key` of the element that a template's path walks
through, or at `count`. What is not there counts as missing: `default` replaces it, as a condition
it is false, and to calculate with it is an error that names the field.

An expression is compiled once and evaluated often. It has no loops and nothing in it is larger
than what it reads, so its cost is bounded by its length.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Final

from ledger.core.denials import Reason
from webhook.kinds.functions import FUNCTIONS, Function, Term, number_of, truth_of
from webhook.kinds.values import Json, Scope, Unfit, brief, step_into, unfit

LENGTH_MAX: Final = 500
"""Longest expression, characters."""

NODES_MAX: Final = 120
"""Most parts of an expression."""

COUNT_MAX: Final = 2**31 - 1
"""Most pods of one template: Kubernetes counts replicas in 32 bits."""

NAMES: Final = frozenset(("metadata", "spec", "status", "item", "key", "count"))
_WORDS: Final = {"true": True, "false": False}

_ARITHMETIC: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
}
_ORDERS: Final[dict[type[ast.cmpop], Callable[[int, int], bool]]] = {
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
}


class ExpressionError(ValueError):
    """An expression cannot be compiled; the text quotes it and says what may be written."""


class Expression:
    """One compiled expression. `names` are the roots of its paths."""

    __slots__ = ("_term", "names", "text")

    def __init__(self, text: str | int) -> None:
        """Compile an expression. Raises ExpressionError."""
        self.text = " ".join(str(text).split())
        body = _parsed(self.text)
        self.names = frozenset(
            node.id for node in ast.walk(body) if isinstance(node, ast.Name) and node.id in NAMES
        )
        self._term = _compiled(body, self.text)

    def truth(self, scope: Scope) -> bool:
        """Return whether a condition holds. Raises Unfit when it is neither true nor false."""
        return truth_of(self._term, scope)

    def pods(self, scope: Scope) -> int:
        """Return a number of pods. Raises Unfit when it is none from 0 to `COUNT_MAX`."""
        number = number_of(self._term, scope)
        if not 0 <= number <= COUNT_MAX:
            raise self._no_count(scope.naming(self._term.field), number)
        return number

    def _no_count(self, field: str, number: int) -> Unfit:
        return unfit(
            f"{field} comes to {brief(number)} pods, which is outside 0 to {COUNT_MAX}",
            field,
            brief(number),
            f"Change {field}: the number of pods is {self.text}",
            Reason.INVALID_COUNT,
        )


def _parsed(text: str) -> ast.expr:
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"the expression is longer than {LENGTH_MAX} characters: {text}")
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError(f"{text!r} is not an expression: {error}") from error
    if sum(1 for _ in ast.walk(body)) > NODES_MAX:
        raise ExpressionError(f"{text!r} has more than {NODES_MAX} parts: make it simpler")
    return body


def _compiled(node: ast.expr, text: str) -> Term:
    """Return what evaluates one part of an expression. Raises ExpressionError."""
    for form, compiler in _COMPILERS.items():
        if isinstance(node, form):
            return compiler(node, text)
    raise _unknown(node, text)


def _constant(node: ast.Constant, text: str) -> Term:
    value = node.value
    if type(value) not in (int, str):
        raise _unknown(node, text)
    return Term(repr(value), lambda scope: value)


def _path(node: ast.expr, text: str) -> Term:
    """Compile `root.name.name`, `root["name"]` and `root[0]`."""
    steps: list[str | int] = []
    while not isinstance(node, ast.Name):
        steps.append(_step(node, text))
        assert isinstance(node, ast.Attribute | ast.Subscript), "a step is one of these"
        node = node.value
    if node.id in _WORDS and not steps:
        word = _WORDS[node.id]
        return Term(node.id, lambda scope: word)
    if node.id not in NAMES:
        raise _unknown(node, text)
    return _reading(node.id, tuple(reversed(steps)))


def _step(node: ast.expr, text: str) -> str | int:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        step = node.slice.value
        if isinstance(step, str) or type(step) is int:
            return step
    raise _unknown(node, text)


def _reading(root: str, steps: Sequence[str | int]) -> Term:
    fields = [root]
    for step in steps:
        named = isinstance(step, str) and step.isidentifier()
        fields.append(f"{fields[-1]}.{step}" if named else f"{fields[-1]}[{step}]")

    def read(scope: Scope) -> Json:
        value = scope.names.get(root)
        for step, field in zip(steps, fields, strict=False):
            if value is None:
                return None
            value = step_into(value, step, scope.naming(field))
        return value

    return Term(fields[-1], read)


def _sum(node: ast.BinOp, text: str) -> Term:
    operation = _ARITHMETIC.get(type(node.op))
    if operation is None:
        raise _unknown(node, text)
    left, right = _compiled(node.left, text), _compiled(node.right, text)
    return Term(
        left.field, lambda scope: operation(number_of(left, scope), number_of(right, scope))
    )


def _sign(node: ast.UnaryOp, text: str) -> Term:
    inner = _compiled(node.operand, text)
    if isinstance(node.op, ast.Not):
        return Term(inner.field, lambda scope: not truth_of(inner, scope))
    if isinstance(node.op, ast.USub):
        return Term(inner.field, lambda scope: -number_of(inner, scope))
    raise _unknown(node, text)


def _comparison(node: ast.Compare, text: str) -> Term:
    if len(node.ops) != 1:
        raise ExpressionError(f"{text!r} compares more than two: join comparisons with `and`")
    left, right = _compiled(node.left, text), _compiled(node.comparators[0], text)
    kind = type(node.ops[0])
    if kind is ast.Eq:
        return Term(left.field, lambda scope: bool(left.read(scope) == right.read(scope)))
    if kind is ast.NotEq:
        return Term(left.field, lambda scope: bool(left.read(scope) != right.read(scope)))
    order = _ORDERS.get(kind)
    if order is None:
        raise _unknown(node, text)
    return Term(left.field, lambda scope: order(number_of(left, scope), number_of(right, scope)))


def _both(node: ast.BoolOp, text: str) -> Term:
    terms = [_compiled(value, text) for value in node.values]
    test = all if isinstance(node.op, ast.And) else any
    return Term(terms[0].field, lambda scope: test(truth_of(term, scope) for term in terms))


def _choice(node: ast.IfExp, text: str) -> Term:
    test, then, other = (_compiled(one, text) for one in (node.test, node.body, node.orelse))
    field = then.field if isinstance(node.orelse, ast.Constant) else other.field
    return Term(
        field, lambda scope: then.read(scope) if truth_of(test, scope) else other.read(scope)
    )


def _call(node: ast.Call, text: str) -> Term:
    function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None or node.keywords:
        raise _unknown(node, text)
    least, most = function.arguments
    if not least <= len(node.args) <= most:
        raise ExpressionError(f"in {text!r}, write {function.usage}")
    terms = [_compiled(argument, text) for argument in node.args]
    return Term(terms[0].field, _called(function, terms))


def _called(function: Function, terms: Sequence[Term]) -> Callable[[Scope], Json]:
    return lambda scope: function.call(scope, terms)


def _unknown(node: ast.expr, text: str) -> ExpressionError:
    usages = ", ".join(function.usage for function in FUNCTIONS.values())
    return ExpressionError(
        f"{ast.unparse(node)!r} in {text!r} is not known: write whole numbers, texts, paths from"
        f" {', '.join(sorted(NAMES))}, + - *, comparisons, and, or, not, `a if b else c`, {usages}"
    )


_COMPILERS: Final[dict[type[ast.expr] | tuple[type[ast.expr], ...], Callable[..., Term]]] = {
    ast.Constant: _constant,
    (ast.Name, ast.Attribute, ast.Subscript): _path,
    ast.BinOp: _sum,
    ast.UnaryOp: _sign,
    ast.Compare: _comparison,
    ast.BoolOp: _both,
    ast.IfExp: _choice,
    ast.Call: _call,
}

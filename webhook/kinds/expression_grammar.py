"""Expression grammar: compiles a syntax tree into terms that evaluate it.

Only these forms compile, so an expression cannot reach any other value, attribute or call.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Final

from webhook.kinds.expression_functions import (
    FUNCTIONS,
    ExpressionFunction,
    ExpressionTerm,
    number_of,
    truth_of,
)
from webhook.kinds.object_values import ExpressionScope, Json, step_into

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


class KindExpressionError(ValueError):
    """An expression cannot be compiled; the text quotes it and lists the forms that compile."""


def compiled(node: ast.expr, text: str) -> ExpressionTerm:
    """Return the term that evaluates a part of an expression. Raises KindExpressionError."""
    for form, compiler in _COMPILERS.items():
        if isinstance(node, form):
            return compiler(node, text)
    raise _unknown(node, text)


def _constant(node: ast.Constant, text: str) -> ExpressionTerm:
    value = node.value
    if type(value) not in (int, str):
        raise _unknown(node, text)
    return ExpressionTerm(repr(value), lambda scope: value)


def _path(node: ast.expr, text: str) -> ExpressionTerm:
    """Compile `root.name.name`, `root["name"]` and `root[0]`."""
    steps: list[str | int] = []
    while not isinstance(node, ast.Name):
        steps.append(_step(node, text))
        assert isinstance(node, ast.Attribute | ast.Subscript), "a step is one of these"
        node = node.value
    if node.id in _WORDS and not steps:
        word = _WORDS[node.id]
        return ExpressionTerm(node.id, lambda scope: word)
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


def _reading(root: str, steps: Sequence[str | int]) -> ExpressionTerm:
    fields = [root]
    for step in steps:
        named = isinstance(step, str) and step.isidentifier()
        fields.append(f"{fields[-1]}.{step}" if named else f"{fields[-1]}[{step}]")

    def read(scope: ExpressionScope) -> Json:
        value = scope.names.get(root)
        for step, field in zip(steps, fields, strict=False):
            if value is None:
                return None
            value = step_into(value, step, scope.naming(field))
        return value

    return ExpressionTerm(fields[-1], read)


def _sum(node: ast.BinOp, text: str) -> ExpressionTerm:
    operation = _ARITHMETIC.get(type(node.op))
    if operation is None:
        raise _unknown(node, text)
    left, right = compiled(node.left, text), compiled(node.right, text)
    return ExpressionTerm(
        left.field, lambda scope: operation(number_of(left, scope), number_of(right, scope))
    )


def _sign(node: ast.UnaryOp, text: str) -> ExpressionTerm:
    inner = compiled(node.operand, text)
    if isinstance(node.op, ast.Not):
        return ExpressionTerm(inner.field, lambda scope: not truth_of(inner, scope))
    if isinstance(node.op, ast.USub):
        return ExpressionTerm(inner.field, lambda scope: -number_of(inner, scope))
    raise _unknown(node, text)


def _comparison(node: ast.Compare, text: str) -> ExpressionTerm:
    if len(node.ops) != 1:
        raise KindExpressionError(f"{text!r} compares more than two: join comparisons with `and`")
    left, right = compiled(node.left, text), compiled(node.comparators[0], text)
    kind = type(node.ops[0])
    if kind is ast.Eq:
        return ExpressionTerm(left.field, lambda scope: bool(left.read(scope) == right.read(scope)))
    if kind is ast.NotEq:
        return ExpressionTerm(left.field, lambda scope: bool(left.read(scope) != right.read(scope)))
    order = _ORDERS.get(kind)
    if order is None:
        raise _unknown(node, text)
    return ExpressionTerm(
        left.field, lambda scope: order(number_of(left, scope), number_of(right, scope))
    )


def _both(node: ast.BoolOp, text: str) -> ExpressionTerm:
    terms = [compiled(value, text) for value in node.values]
    test = all if isinstance(node.op, ast.And) else any
    return ExpressionTerm(
        terms[0].field, lambda scope: test(truth_of(term, scope) for term in terms)
    )


def _choice(node: ast.IfExp, text: str) -> ExpressionTerm:
    test, then, other = (compiled(part, text) for part in (node.test, node.body, node.orelse))
    field = then.field if isinstance(node.orelse, ast.Constant) else other.field
    return ExpressionTerm(
        field, lambda scope: then.read(scope) if truth_of(test, scope) else other.read(scope)
    )


def _call(node: ast.Call, text: str) -> ExpressionTerm:
    function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None or node.keywords:
        raise _unknown(node, text)
    least, most = function.arguments
    if not least <= len(node.args) <= most:
        raise KindExpressionError(f"in {text!r}, write {function.usage}")
    terms = [compiled(argument, text) for argument in node.args]
    return ExpressionTerm(terms[0].field, _called(function, terms))


def _called(
    function: ExpressionFunction, terms: Sequence[ExpressionTerm]
) -> Callable[[ExpressionScope], Json]:
    return lambda scope: function.call(scope, terms)


def _unknown(node: ast.expr, text: str) -> KindExpressionError:
    usages = ", ".join(function.usage for function in FUNCTIONS.values())
    return KindExpressionError(
        f"{ast.unparse(node)!r} in {text!r} is not known: write whole numbers, texts, paths from"
        f" {', '.join(sorted(NAMES))}, + - *, comparisons, and, or, not, `a if b else c`, {usages}"
    )


_COMPILERS: Final[
    dict[type[ast.expr] | tuple[type[ast.expr], ...], Callable[..., ExpressionTerm]]
] = {
    ast.Constant: _constant,
    (ast.Name, ast.Attribute, ast.Subscript): _path,
    ast.BinOp: _sum,
    ast.UnaryOp: _sign,
    ast.Compare: _comparison,
    ast.BoolOp: _both,
    ast.IfExp: _choice,
    ast.Call: _call,
}

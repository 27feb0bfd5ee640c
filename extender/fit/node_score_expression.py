"""The node score expression, such as `3*memory + cores - 5*whole` (setting `node_score`).

An expression has numbers, the names below, parentheses, and `+ - * /`. A divisor must be a number,
so that no node can make the result infinite.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NAMES: Final = ("memory", "cores", "slots", "whole", "cards")
"""After the placement: shares in use, 0 to 1; the share of unused cards; the number of cards."""

LENGTH_MAX: Final = 500
"""Longest expression, in characters."""

NUMBER_MAX: Final = 1e9
"""Largest number, either way."""

_BINARY: Final[dict[type[ast.operator], Callable[[Floats, Floats], Floats]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Floats], Floats]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class NodeScoreError(ValueError):
    """The text is not an expression; the message names the place and the remedy."""


class NodeScore:
    """A score of nodes, higher is better."""

    def __init__(self, text: str) -> None:
        """Parse the text. Raises NodeScoreError with the problem and its place."""
        self.text = text
        if len(text) > LENGTH_MAX:
            raise NodeScoreError(f"{len(text)} characters are more than {LENGTH_MAX}")
        try:
            self._root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            column = getattr(error, "offset", None) or 1
            raise NodeScoreError(f"{text!r} is not an expression at character {column}") from error
        for node in _operands(self._root):
            _check(node, text)

    def score(self, values: Mapping[str, Floats]) -> Floats:
        """Return the score of each node from the values of `NAMES`."""
        return _value(self._root, values)


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return a node and all that it is made of, the operators aside."""
    if isinstance(node, ast.BinOp):
        return [node, *_operands(node.left), *_operands(node.right)]
    if isinstance(node, ast.UnaryOp):
        return [node, *_operands(node.operand)]
    return [node]


def _check(node: ast.expr, text: str) -> None:
    wrong = _wrong(node)
    if wrong:
        place = f"at character {node.col_offset + 1} of {text.strip()!r}"
        raise NodeScoreError(f"{wrong} {place}")


def _wrong(node: ast.expr) -> str:
    """Return the problem of a node itself, empty if there is none."""
    match node:
        case ast.Name(id=name):
            return "" if name in NAMES else f"unknown name {name}, known are {', '.join(NAMES)},"
        case ast.Constant(value=value):
            return "" if _is_number(value) else f"no number up to {NUMBER_MAX:.0f}"
        case ast.BinOp(op=ast.Div(), right=right):
            ok = isinstance(right, ast.Constant) and _is_number(right.value) and right.value != 0
            return "" if ok else "a division by something else than a number that is not 0"
        case ast.BinOp(op=op):
            return "" if type(op) in _BINARY else "another operator than + - * /"
        case ast.UnaryOp(op=op):
            return "" if type(op) in _UNARY else "another sign than + -"
    return "something else than numbers, names, parentheses and + - * /"


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) <= NUMBER_MAX


def _value(node: ast.expr, values: Mapping[str, Floats]) -> Floats:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=int() | float() as value):
            return np.asarray(value, np.float64)
        case ast.UnaryOp(op=sign, operand=operand):
            return _UNARY[type(sign)](_value(operand, values))
        case ast.BinOp(op=op, left=left, right=right):
            return _BINARY[type(op)](_value(left, values), _value(right, values))
    raise AssertionError("the parser accepts no other expression")

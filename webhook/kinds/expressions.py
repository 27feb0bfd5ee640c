"""Expressions: numbers of pods and conditions such as `suspended`, from the fields of an object.

The language is a subset of Python: whole numbers, texts, `true`, `false`, paths, `+ - *`,
comparisons, `and`, `or`, `not`, `a if b else c`, and the functions in `expression_functions`. A
path begins at `metadata`, `spec`, `status`, at `count`, or at the `item` or `key` of an element of
a template's path. A path to a field that does not exist has a missing value. `default` replaces it,
a condition takes it as false, and arithmetic with it is an error that names the field.

An expression is compiled once and evaluated often. It has no loops, and no result is larger than
its inputs, so its cost is bounded by its length.
"""

import ast
from typing import Final

from ledger.core.model.denials import Reason
from webhook.kinds.expression_functions import number_of, truth_of
from webhook.kinds.expression_grammar import NAMES, KindExpressionError, compiled
from webhook.kinds.object_values import ExpressionScope, InvalidObject, brief, invalid_object

LENGTH_MAX: Final = 500
"""Maximum length of an expression, in characters."""

NODES_MAX: Final = 120
"""Maximum number of nodes in the syntax tree of an expression."""

COUNT_MAX: Final = 2**31 - 1
"""Maximum number of pods of one template: Kubernetes counts replicas in 32 bits."""


class KindExpression:
    """One compiled expression. `names` are the roots of its paths."""

    __slots__ = ("_term", "names", "text")

    def __init__(self, text: str | int) -> None:
        """Compile an expression. Raises KindExpressionError."""
        self.text = " ".join(str(text).split())
        body = _parsed(self.text)
        self.names = frozenset(
            node.id for node in ast.walk(body) if isinstance(node, ast.Name) and node.id in NAMES
        )
        self._term = compiled(body, self.text)

    @property
    def reads_annotations(self) -> bool:
        """Whether a path of the expression may lead through annotations of the object."""
        return "metadata" in self.names and "annotations" in self.text

    def truth(self, scope: ExpressionScope) -> bool:
        """Return whether the condition holds. Raises InvalidObject for other types."""
        return truth_of(self._term, scope)

    def pods(self, scope: ExpressionScope) -> int:
        """Return a number of pods. Raises InvalidObject unless it is from 0 to `COUNT_MAX`."""
        number = number_of(self._term, scope)
        if not 0 <= number <= COUNT_MAX:
            raise self._no_count(scope.naming(self._term.field), number)
        return number

    def _no_count(self, field: str, number: int) -> InvalidObject:
        return invalid_object(
            f"{field} comes to {brief(number)} pods, which is outside 0 to {COUNT_MAX}",
            field,
            brief(number),
            f"Change {field}: the number of pods is {self.text}",
            Reason.INVALID_COUNT,
        )


def _parsed(text: str) -> ast.expr:
    if len(text) > LENGTH_MAX:
        raise KindExpressionError(f"the expression is longer than {LENGTH_MAX} characters: {text}")
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise KindExpressionError(f"{text!r} is not an expression: {error}") from error
    if sum(1 for _ in ast.walk(body)) > NODES_MAX:
        raise KindExpressionError(f"{text!r} has more than {NODES_MAX} parts: make it simpler")
    return body

"""Label selectors of Kubernetes as conditions of the ledger.

The API server rejects invalid selectors; the schema of a custom resource may not. An invalid
condition is left out, with a warning. Its quota then counts more objects than intended, which a
denial that names the quota shows at once. The other reading would count nothing, and the limit
would silently not hold.
"""

from collections.abc import Callable, Sequence

import msgspec

from ledger.core.model.traits import OPERATORS, Requirement, Selection
from ledger.kube.api.quoting import shown

Warn = Callable[[str], None]
"""Receives a sentence for the author of the selector."""


class LabelRequirement(msgspec.Struct, frozen=True, gc=False):
    """One condition of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Conditions on labels that must all hold; without any it selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelRequirement] | None = None


def of_labels(selector: LabelSelector | None, field: str, warn: Warn) -> Selection:
    """Return the conditions of a label selector; `field` is its path in the object.

    `warn` receives the field and the problem of each condition that is left out.
    """
    if selector is None:
        return ()
    labels = selector.match_labels or {}
    conditions = [Requirement(key, "In", (labels[key],)) for key in sorted(labels)]
    for number, expression in enumerate(selector.match_expressions or ()):
        where = f"{field}.matchExpressions[{number}]"
        problem = (
            "has no key"
            if not expression.key
            else problem_of(expression.operator, expression.values)
        )
        if problem:
            warn(f"{where}: {problem}")
        else:
            conditions.append(
                Requirement(expression.key, expression.operator, tuple(expression.values or ()))
            )
    return tuple(conditions)


def of_names(key: str, names: Sequence[str] | None) -> Selection:
    """Return the condition that the item `key` is one of `names`, none when there are no names."""
    return (Requirement(key, "In", tuple(names)),) if names else ()


def problem_of(operator: str, values: Sequence[str] | None) -> str:
    """Return the problem of an operator and its values, "" without one."""
    if operator not in OPERATORS:
        return f"the operator {shown(operator)!r} is none of {', '.join(OPERATORS)}"
    takes_values = operator in ("In", "NotIn")
    if takes_values and not values:
        return f"the operator {operator} needs values"
    if values and not takes_values:
        return f"the operator {operator} takes no values"
    return ""


def counting_more(warn: Warn) -> Warn:
    """Return a `warn` that adds the effect of a condition that is left out of a quota."""
    return lambda problem: warn(
        f"{problem}; the condition is left out, and the quota counts more for it"
    )

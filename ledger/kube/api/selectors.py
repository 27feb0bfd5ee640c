"""Selectors: scopes and label selectors of Kubernetes as conditions of the ledger.

The API server rejects invalid selectors; the schema of a custom resource may not. An invalid
condition is left out, with a warning. Its quota then counts more objects than intended, which a
denial that names the quota shows at once. The other reading would count nothing, and the limit
would silently not hold.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ledger.core.model import traits
from ledger.core.model.traits import OPERATORS, Requirement, Selection
from ledger.kube.api.objects import ScopeRequirement, ScopeSelector
from ledger.kube.api.quoting import shown

_SCOPES: Final = {
    "Terminating": Requirement(traits.TERMINATING, "Exists"),
    "NotTerminating": Requirement(traits.TERMINATING, "DoesNotExist"),
    "BestEffort": Requirement(traits.BEST_EFFORT, "Exists"),
    "NotBestEffort": Requirement(traits.BEST_EFFORT, "DoesNotExist"),
    "CrossNamespacePodAffinity": Requirement(traits.CROSS_NAMESPACE, "Exists"),
}
_PRIORITY_CLASS: Final = "PriorityClass"
_NOT_OF_PODS: Final = "VolumeAttributesClass"

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
    """Return the conditions of a label selector; `field` is its path in the object."""
    if selector is None:
        return ()
    labels = selector.match_labels or {}
    found = [Requirement(key, "In", (labels[key],)) for key in sorted(labels)]
    for number, one in enumerate(selector.match_expressions or ()):
        where = f"{field}.matchExpressions[{number}]"
        problem = "has no key" if not one.key else _problem(one.operator, one.values)
        if problem:
            warn(_left_out(where, problem))
        else:
            found.append(Requirement(one.key, one.operator, tuple(one.values or ())))
    return tuple(found)


def of_names(key: str, names: Sequence[str] | None) -> Selection:
    """Return the condition that the item `key` is one of `names`, none when there are no names."""
    return (Requirement(key, "In", tuple(names)),) if names else ()


def of_scopes(
    scopes: Sequence[str] | None, selector: ScopeSelector | None, warn: Warn
) -> Selection | None:
    """Return the conditions of a quota's scopes, None when they select no pod at all."""
    asked = {f"spec.scopes[{at}]": _exists(one) for at, one in enumerate(scopes or ())}
    for at, one in enumerate((selector and selector.match_expressions) or ()):
        asked[f"spec.scopeSelector.matchExpressions[{at}]"] = one
    found: list[Requirement] = []
    for where, one in asked.items():
        if one.scope_name == _NOT_OF_PODS:
            warn(f"{where}: the scope {_NOT_OF_PODS} is of volumes, so this quota limits no pod")
            return None
        condition = _scope(one.scope_name, one.operator, one.values)
        if isinstance(condition, str):
            warn(_left_out(where, condition))
        elif condition not in found:
            found.append(condition)
    return tuple(found)


def _exists(scope: str) -> ScopeRequirement:
    return ScopeRequirement(scope, "Exists")


def _scope(scope: str, operator: str, values: Sequence[str] | None) -> Requirement | str:
    """Return the condition of one scope, or its problem."""
    if scope == _PRIORITY_CLASS:
        problem = _problem(operator, values)
        return problem or Requirement(traits.PRIORITY, operator, tuple(values or ()))
    if scope not in _SCOPES:
        known = ", ".join((*_SCOPES, _PRIORITY_CLASS))
        return f"{shown(scope)!r} is not a known scope; use one of {known}"
    if operator != "Exists":
        return f"the scope {scope} takes the operator Exists alone, not {shown(operator)!r}"
    return _SCOPES[scope]


def _problem(operator: str, values: Sequence[str] | None) -> str:
    """Return the problem of an operator and its values, "" without one."""
    if operator not in OPERATORS:
        return f"the operator {shown(operator)!r} is none of {', '.join(OPERATORS)}"
    takes_values = operator in ("In", "NotIn")
    if takes_values and not values:
        return f"the operator {operator} needs values"
    if values and not takes_values:
        return f"the operator {operator} takes no values"
    return ""


def _left_out(where: str, problem: str) -> str:
    return f"{where}: {problem}; the condition is left out, and the quota counts more for it"

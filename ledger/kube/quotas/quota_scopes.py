"""Quota scopes: the scopes and the scopeSelector of a quota as conditions of the ledger.

An invalid scope is left out with a warning, and the quota counts more pods than intended.
"""

from collections.abc import Sequence
from typing import Final

from ledger.core.model import traits
from ledger.core.model.traits import Requirement, Selection
from ledger.kube.api.label_selectors import Warn, counting_more, problem_of
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


def of_scopes(
    scopes: Sequence[str] | None, selector: ScopeSelector | None, warn: Warn
) -> Selection | None:
    """Return the conditions of a quota's scopes, None when they select no pod at all."""
    asked = {f"spec.scopes[{at}]": _exists(scope) for at, scope in enumerate(scopes or ())}
    for at, requirement in enumerate((selector and selector.match_expressions) or ()):
        asked[f"spec.scopeSelector.matchExpressions[{at}]"] = requirement
    conditions: list[Requirement] = []
    for where, requirement in asked.items():
        if requirement.scope_name == _NOT_OF_PODS:
            warn(f"{where}: the scope {_NOT_OF_PODS} is of volumes, so this quota limits no pod")
            return None
        condition = _scope(requirement.scope_name, requirement.operator, requirement.values)
        if isinstance(condition, str):
            counting_more(warn)(f"{where}: {condition}")
        elif condition not in conditions:
            conditions.append(condition)
    return tuple(conditions)


def _exists(scope: str) -> ScopeRequirement:
    return ScopeRequirement(scope, "Exists")


def _scope(scope: str, operator: str, values: Sequence[str] | None) -> Requirement | str:
    """Return the condition of one scope, or its problem."""
    if scope == _PRIORITY_CLASS:
        problem = problem_of(operator, values)
        return problem or Requirement(traits.PRIORITY, operator, tuple(values or ()))
    if scope not in _SCOPES:
        known = ", ".join((*_SCOPES, _PRIORITY_CLASS))
        return f"{shown(scope)!r} is not a known scope; use one of {known}"
    if operator != "Exists":
        return f"the scope {scope} takes the operator Exists alone, not {shown(operator)!r}"
    return _SCOPES[scope]

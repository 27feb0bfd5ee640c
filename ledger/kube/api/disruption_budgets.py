"""Disruption budgets: how many pods of a selection may be evicted now.

The API server maintains them. A component that selects victims reads them first, so that it
selects no pod whose eviction the API server would reject.
"""

from collections.abc import Mapping

import msgspec

from ledger.kube.api.label_selectors import LabelRequirement, LabelSelector
from ledger.kube.api.objects import ListMeta, ObjectMeta, Pod


class BudgetSpec(msgspec.Struct, frozen=True, gc=False):
    """The pods of its namespace that a budget covers: none without a selector."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How many of them may be evicted now; `disrupted_pods` are counted already, by name."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None


class Budget(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def covers(self, pod: Pod) -> bool:
        """Return whether evicting a pod of the budget's namespace takes one from the budget."""
        if self.spec.selector is None or pod.metadata.name in (self.status.disrupted_pods or ()):
            return False
        return _selects(self.spec.selector, pod.metadata.labels or {})


class BudgetList(msgspec.Struct, frozen=True, gc=False):
    """One page of PodDisruptionBudgets."""

    metadata: ListMeta = ListMeta()
    items: list[Budget] | None = None


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet all conditions; an empty selector has none."""
    wanted = (selector.match_labels or {}).items()
    return wanted <= labels.items() and all(
        _holds(expression, labels) for expression in selector.match_expressions or ()
    )


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator in ("Exists", "DoesNotExist"):
        return (requirement.key in labels) is (requirement.operator == "Exists")
    among = labels.get(requirement.key) in (requirement.values or ())
    return among if requirement.operator == "In" else not among

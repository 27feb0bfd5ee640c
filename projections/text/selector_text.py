"""Wording: traits and selections as people read them."""

from typing import Final

from ledger.core.model import traits
from ledger.core.model.traits import Reach, Requirement, Selection

_ITEMS: Final = {
    traits.PRIORITY: "priority class",
    traits.TERMINATING: "scope Terminating",
    traits.BEST_EFFORT: "scope BestEffort",
    traits.CROSS_NAMESPACE: "scope CrossNamespacePodAffinity",
    traits.NAME: "name",
    traits.REGION: "region",
}


def text_in_words(text: str) -> str:
    """Write one text of traits, `name=team-a, team=red`; empty when it has no item."""
    items = (item.partition("=") for item in text.split(",") if item)
    return ", ".join(f"{_ITEMS.get(key, key)}{sign}{value}" for key, sign, value in items)


def selection_in_words(selection: Selection) -> str:
    """Write the conditions of a selection, empty when it selects everything."""
    return " and ".join(map(_requirement_in_words, selection))


def reach_in_words(reach: Reach | None) -> str:
    """Write which namespaces a reach covers, empty when there is none."""
    if reach is None:
        return ""
    namespaces, clusters = selection_in_words(reach.namespaces), selection_in_words(reach.clusters)
    of_namespaces = f"namespaces with {namespaces}" if namespaces else "all namespaces"
    return f"{of_namespaces} of " + (f"clusters with {clusters}" if clusters else "all clusters")


def account_in_words(reach: Reach | None, selects: Selection) -> str:
    """Return the text of a selection, empty when the account counts all that it names."""
    parts = []
    if reach is not None:
        parts.append(f"covers {reach_in_words(reach)}")
    if selects:
        parts.append(f"counts objects with {selection_in_words(selects)}")
    return "; ".join(parts)


def _requirement_in_words(requirement: Requirement) -> str:
    item = _ITEMS.get(requirement.key, requirement.key)
    match requirement.operator:
        case "Exists":
            return item
        case "DoesNotExist":
            return f"no {item}"
    among = "in" if requirement.operator == "In" else "not in"
    return f"{item} {among} ({', '.join(requirement.values)})"

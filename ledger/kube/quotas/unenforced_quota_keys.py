"""Unenforced quota keys: the warnings about keys in `spec.hard` that limit nothing.

Kubernetes accepts any key with a slash, so a missing prefix or unknown card type is not noticed.
"""

from collections.abc import Container
from typing import Final

from ledger.kube.api.quoting import shown
from ledger.kube.requests.demand_rules import DemandRules

PREFIXES: Final = ("limits.", "requests.")
"""Prefixes of the keys that limit a resource."""


def warning(key: str, managed: Container[str], rules: DemandRules) -> str:
    """Return the warning about a key that is not enforced, "" if it needs none."""
    prefix = next((known for known in PREFIXES if key.startswith(known)), "")
    resource = key[len(prefix) :]
    for vendor in rules.vendors:
        if vendor.percentage and f".{resource}".endswith(f".{vendor.percentage}"):
            return f"percentages of cards cannot be added up; limit {vendor.memory} instead"
    if not prefix and f"limits.{key}" in managed:
        return f"Kubernetes does not enforce this key; write limits.{key}"
    cards = next((name for name in rules.of_cards if resource.endswith(f".{name}")), "")
    if cards:
        return _no_type(resource.removesuffix(f".{cards}"), rules)
    if prefix == "limits." and "/" in resource:
        return (
            "Kubernetes does not enforce this key and it is not a managed resource; write one of"
            f" {', '.join(rules.charged)}"
        )
    return ""


def _no_type(name: str, rules: DemandRules) -> str:
    known = f"known are {', '.join(rules.known_types)}" if rules.types else "none is known"
    return (
        f"{shown(name)!r} is not a known type of card ({known}), so this key is not enforced; use a"
        " known one, or add it with the setting gpu_types"
    )

"""Resource requests of a pod's spec in CEL: the fields that `pod_demand` reads.

A pod with resource claims requests something, because the condition cannot read their templates.
Every request that is charged must be reviewed, so the conditions of pods and of the templates of
other kinds are both made here. Every field may be absent, so all are read as optional ones, which
CEL has since Kubernetes 1.29.
"""

from collections.abc import Sequence
from typing import Final

_CONTAINERS: Final = ("containers", "initContainers")
_RESOURCES: Final = ("limits", "requests")


def asks(spec: str, names: str) -> str:
    """Return the CEL condition that a pod's spec requests one of `names`, or a resource claim.

    Both are CEL, and so is the result.
    """
    lists = ", ".join(f"{spec}.?{field}.orValue([])" for field in _CONTAINERS)
    within = f"[{lists}].exists(l, l.exists(c, {any_of(maps('c.?resources'), names)}))"
    whole = [*maps(f"{spec}.?resources"), f"{spec}.?overhead"]
    return f"{within} || {any_of(whole, names)} || {spec}.?resourceClaims.hasValue()"


def maps(resources: str) -> list[str]:
    """Return the maps of amounts in the `resources` of a container or a pod, as CEL."""
    return [f"{resources}.?{field}" for field in _RESOURCES]


def any_of(amounts: Sequence[str], names: str) -> str:
    """Return the CEL condition that one of several optional maps has one of `names`."""
    joined = ", ".join(f"{optional}.orValue({{}})" for optional in amounts)
    return f"[{joined}].exists(m, m.exists(r, r in {names}))"

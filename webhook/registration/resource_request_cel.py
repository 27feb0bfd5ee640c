"""Where a pod's spec says what it asks for, as CEL: the places that
`ledger.kube.requests.pod_demand` reads.

A review must not be left out where something is charged, so both conditions, of pods and of the
templates of other kinds, are made here. Every field may be absent, so all are read as optional
ones, which CEL has since Kubernetes 1.29.
"""

from collections.abc import Sequence
from typing import Final

_CONTAINERS: Final = ("containers", "initContainers")
_RESOURCES: Final = ("limits", "requests")


def asks(spec: str, names: str) -> str:
    """Return whether a pod's spec asks for one of `names`, both as CEL."""
    lists = ", ".join(f"{spec}.?{one}.orValue([])" for one in _CONTAINERS)
    within = f"[{lists}].exists(l, l.exists(c, {any_of(maps('c.?resources'), names)}))"
    whole = [*maps(f"{spec}.?resources"), f"{spec}.?overhead"]
    return f"{within} || {any_of(whole, names)}"


def maps(resources: str) -> list[str]:
    """Return the amounts by resource that stand in the `resources` of a container or a pod."""
    return [f"{resources}.?{one}" for one in _RESOURCES]


def any_of(amounts: Sequence[str], names: str) -> str:
    """Return whether one of several amounts by resource, all optional, names one of `names`."""
    found = ", ".join(f"{one}.orValue({{}})" for one in amounts)
    return f"[{found}].exists(m, m.exists(r, r in {names}))"

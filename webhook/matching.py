"""Which reviews the API server sends: CEL conditions, so that only what concerns us waits for us.

An object is selected when it, or what it was before, asks for a managed resource or carries an
annotation that tells of an allocation. An update is selected only when it changes something that
is judged: whoever writes labels and finalizers, the Job controller for one, must not depend on
this service being up.

An expression that fails counts as a failed webhook, so every field that may be absent is guarded.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_ALLOCATION_PREFIXES: Final = ("gpuledger.io/", "hami.io/")
_NODE_LABEL: Final = "hami.io/vgpu-node"


def conditions(resources: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions, all of which hold for what is sent."""
    return [
        {"name": "concerns-accelerators", "expression": _concerned(resources)},
        {"name": "changes-what-is-judged", "expression": _changed()},
    ]


def _concerned(resources: Sequence[str]) -> str:
    return (
        "[object, oldObject].exists(o, o != null && ("
        f"{_asks(_literal(resources))} || {_carries()} || {_labelled('o')}))"
    )


def _asks(names: str) -> str:
    lists = (
        f"(has(o.spec.{field}) ? o.spec.{field} : []).exists(c, {_named('c', names)})"
        for field in ("containers", "initContainers")
    )
    return " || ".join((*lists, _named("o.spec", names)))


def _named(holder: str, names: str) -> str:
    parts = (
        f"(has({holder}.resources.{field}) && {holder}.resources.{field}.exists(r, r in {names}))"
        for field in ("limits", "requests")
    )
    return f"has({holder}.resources) && ({' || '.join(parts)})"


def _carries() -> str:
    prefixes = " || ".join(f"a.startsWith({_literal(prefix)})" for prefix in _ALLOCATION_PREFIXES)
    return f"has(o.metadata.annotations) && o.metadata.annotations.exists(a, {prefixes})"


def _labelled(holder: str) -> str:
    labels = f"{holder}.metadata.labels"
    return f"(has({labels}) && {_literal(_NODE_LABEL)} in {labels})"


def _changed() -> str:
    either = (
        "request.operation != 'UPDATE'",
        "object.spec != oldObject.spec",
        "has(object.metadata.annotations) != has(oldObject.metadata.annotations)",
        "(has(object.metadata.annotations)"
        " && object.metadata.annotations != oldObject.metadata.annotations)",
        f"{_label('object')} != {_label('oldObject')}",
        _adopted(),
    )
    return " || ".join(either)


def _adopted() -> str:
    """Return whether an update names a controller that the object did not have."""
    references = "has({0}.metadata.ownerReferences) ? {0}.metadata.ownerReferences : []"
    mine, before = references.format("object"), references.format("oldObject")
    controls = "has({0}.controller) && {0}.controller"
    return (
        f"({mine}).exists(r, {controls.format('r')} && "
        f"!({before}).exists(q, {controls.format('q')} && q.uid == r.uid))"
    )


def _label(holder: str) -> str:
    return f"({_labelled(holder)} ? {holder}.metadata.labels[{_literal(_NODE_LABEL)}] : '')"


def _literal(value: str | Sequence[str]) -> str:
    # A JSON text, or a list of them, is a CEL literal too.
    return msgspec.json.encode(value).decode()

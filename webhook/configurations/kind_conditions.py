"""Kind conditions: CEL conditions of the reviews of a kind, made from its template paths.

The API server sends a review if any template of the object, or of the object before an update,
requests one of the resources. It sends an update only if the update changes the spec, the labels
by which quotas select, or annotations by which the kind counts its pods, or if it adds a
controller. So a client that writes a finalizer does not depend on this service.

Every field may be absent, so all fields are read as optional ones. CEL has those since Kubernetes
1.29. An expression that fails counts as a failed webhook.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from webhook.configurations import resource_request_cel
from webhook.kinds.kind_schema import PodSet, WorkloadKind


def conditions(kind: WorkloadKind, resources: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions of a kind. A review is sent if all of them hold."""
    return [
        {"name": "asks-for-what-is-counted", "expression": _concerned(kind, resources)},
        {"name": "changes-what-is-judged", "expression": _changed(kind)},
    ]


def _concerned(kind: WorkloadKind, resources: Sequence[str]) -> str:
    # A JSON list of texts is a CEL literal too.
    names = msgspec.json.encode(resources).decode()
    asking = " || ".join(dict.fromkeys(_pod_set_asks(pods, names) for pods in kind.pod_sets))
    return f"[object, oldObject].exists(o, o != null && ({asking}))"


def _pod_set_asks(pods: PodSet, names: str) -> str:
    path = pods.path
    before = _member("o", path.before)
    if path.walk == "[*]":
        inside = _asks(pods, _member("i", path.after), names)
        return f"{before}.orValue([]).exists(i, {inside})"
    if path.walk:
        inside = _asks(pods, _member(f"{before}[?k]", path.after), names)
        return f"{before}.orValue({{}}).exists(k, {inside})"
    return _asks(pods, before, names)


def _asks(pods: PodSet, holder: str, names: str) -> str:
    """Return the condition that the value of a path requests one of `names`."""
    if pods.resources is not None:
        return resource_request_cel.any_of(resource_request_cel.maps(holder), names)
    return resource_request_cel.asks(
        f"{holder}.?spec" if pods.template is not None else holder, names
    )


def _member(holder: str, steps: Sequence[str]) -> str:
    return "".join((holder, *(f".?{step}" for step in steps)))


def _changed(kind: WorkloadKind) -> str:
    annotations = " || object.metadata.?annotations != oldObject.metadata.?annotations"
    return (
        "request.operation != 'UPDATE'"
        " || object.?spec != oldObject.?spec"
        " || object.metadata.?labels != oldObject.metadata.?labels"
        f"{annotations if kind.counts_by_annotations else ''}"
        f" || {_references('object')}.exists(r, {_controls('r')}"
        f" && !{_references('oldObject')}.exists(q, {_controls('q')} && q.uid == r.uid))"
    )


def _references(holder: str) -> str:
    return f"{holder}.metadata.?ownerReferences.orValue([])"


def _controls(reference: str) -> str:
    return f"{reference}.?controller.orValue(false)"

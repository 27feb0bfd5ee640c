"""Pod conditions: CEL conditions of the reviews of pods; other pods do not wait for this service.

The API server sends a review if the pod, or the pod before an update, requests a managed resource
or has an annotation of an allocation. It sends an update only if the update changes a reviewed
field: a client that writes finalizers, or labels by which no quota selects, for example the Job
controller, must not depend on this service.

An expression that fails counts as a failed webhook, so every field that may be absent is guarded.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ledger.kube.hami.fence_label import LABEL
from webhook.configurations import resource_request_cel

_ALLOCATION_PREFIXES: Final = ("gpuledger.io/", "hami.io/")
_NODE_LABEL: Final = "hami.io/vgpu-node"

CHANGED: Final = "changes-what-is-judged"
"""Name of the condition that depends on the labels of pods."""


def conditions(resources: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions of pods. A review is sent if all of them hold.

    A change of any label is sent until the labels are known by which quotas select.
    """
    return [
        {"name": "concerns-accelerators", "expression": _concerned(resources)},
        {"name": CHANGED, "expression": changed(None)},
    ]


def claims(trusted: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions of Bindings and statuses of pods.

    A review is sent only if it writes an annotation or label of an allocation, so kubelets and
    schedulers do not wait for this service. `trusted` are the user names that may write them, whose
    requests are not reviewed.
    """
    return [
        {
            "name": "is-not-trusted",
            "expression": f"!(request.userInfo.username in {_literal(list(trusted))})",
        },
        {"name": "changes-a-claim", "expression": _claimed()},
    ]


def debugging(resources: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions of ephemeral containers.

    Only a privileged one is reviewed; others can be added while this service is down. A class may
    serve an extended resource that is not in `resources`; then the status names its claim.
    """
    extended = "object.?status.?extendedResourceClaimStatus.hasValue()"
    privileged = "c.?securityContext.?privileged.orValue(false)"
    return [
        {
            "name": "asks-for-accelerators",
            "expression": (
                f"{resource_request_cel.asks('object.spec', _literal(resources))} || {extended}"
            ),
        },
        {
            "name": "has-a-privileged-one",
            "expression": f"object.spec.?ephemeralContainers.orValue([]).exists(c, {privileged})",
        },
    ]


def _claimed() -> str:
    mine, before = _annotations("object"), _annotations("oldObject")
    differs = (
        f"(!(a in {before}) || {mine}[a] != {before}[a])",
        f"!(a in {mine})",
    )
    either = (
        f"{mine}.exists(a, ({_prefixed('a')}) && {differs[0]})",
        f"{before}.exists(a, ({_prefixed('a')}) && {differs[1]})",
        f"{_label('object')} != (oldObject == null ? '' : {_label('oldObject')})",
    )
    return " || ".join(either)


def _annotations(holder: str) -> str:
    there = f"{holder} != null && has({holder}.metadata.annotations)"
    return f"({there} ? {holder}.metadata.annotations : {{}})"


def _prefixed(name: str) -> str:
    return " || ".join(f"{name}.startsWith({_literal(prefix)})" for prefix in _ALLOCATION_PREFIXES)


def _concerned(resources: Sequence[str]) -> str:
    asks = resource_request_cel.asks("o.spec", _literal(resources))
    condition = f"{asks} || {_carries()} || {_labelled('o')}"
    return f"[object, oldObject].exists(o, o != null && ({condition}))"


def _carries() -> str:
    return f"has(o.metadata.annotations) && o.metadata.annotations.exists(a, {_prefixed('a')})"


def _labelled(holder: str) -> str:
    labels = f"{holder}.metadata.labels"
    return f"(has({labels}) && {_literal(_NODE_LABEL)} in {labels})"


def changed(labels: Sequence[str] | None) -> str:
    """Return the condition that an update changes a reviewed field.

    `labels` are the keys by which quotas select, None if they are not known.
    """
    either = (
        "request.operation != 'UPDATE'",
        "object.spec != oldObject.spec",
        "has(object.metadata.annotations) != has(oldObject.metadata.annotations)",
        "(has(object.metadata.annotations)"
        " && object.metadata.annotations != oldObject.metadata.annotations)",
        f"{_label('object')} != {_label('oldObject')}",
        _adopted(),
        _relabelled(labels),
    )
    return " || ".join(clause for clause in either if clause)


def _relabelled(labels: Sequence[str] | None) -> str:
    """Return the condition that an update changes labels by which quotas select.

    Until these are known, it holds for any label but the fence. No quota selects by the fence, and
    it is written after a replica was killed, which may be the one that would review it.
    """
    mine, before = (
        f"(has({variable}.metadata.labels) ? {variable}.metadata.labels : {{}})"
        for variable in ("object", "oldObject")
    )
    if labels is None:
        fence = _literal(LABEL)
        more = f"{mine}.exists(k, k != {fence} && !(k in {before} && {mine}[k] == {before}[k]))"
        return f"{more} || {before}.exists(k, k != {fence} && !(k in {mine}))"
    if not labels:
        return ""
    differs = f"(k in {mine}) != (k in {before}) || (k in {mine} && {mine}[k] != {before}[k])"
    return f"{_literal(sorted(labels))}.exists(k, {differs})"


def _adopted() -> str:
    """Return the condition that an update adds a controller."""
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

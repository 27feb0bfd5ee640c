"""Resource claim conditions: CEL conditions of the reviews of claims and their templates.

The API server sends no review of a claim all of whose classes have no GPUs, those of alternatives
included. A request of which no class can be read is sent. The spec of a claim is immutable, so an
update is sent only if it changes labels, by which quotas may select, or what makes the claim count
with a pod. A write of the status, which a rule may add, is sent only if it writes an allocation.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_JUDGED: Final = (
    "labels",
    "ownerReferences",
    "annotations[?'resource.kubernetes.io/pod-claim-name']",
    "annotations[?'resource.kubernetes.io/extended-resource-claim']",
)
_OTHER: Final = " || ".join(
    f"object.metadata.?{field} != oldObject.metadata.?{field}" for field in _JUDGED
)
_CHANGED: Final = (
    "request.operation != 'UPDATE' || (request.?subResource.orValue('') == 'status'"
    " ? object.?status.?allocation.hasValue()"
    " && object.?status.?allocation != oldObject.?status.?allocation"
    f" : {_OTHER})"
)


def of_claims(others: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions of claims. `others` are the classes without GPUs."""
    return [
        {"name": "asks-for-what-is-counted", "expression": _asks("object.?spec", others)},
        {"name": "changes-what-is-judged", "expression": _CHANGED},
    ]


def of_templates(others: Sequence[str]) -> list[dict[str, Any]]:
    """Return the match conditions of the creations of templates."""
    return [{"name": "asks-for-what-is-counted", "expression": _asks("object.?spec.?spec", others)}]


def _asks(spec: str, others: Sequence[str]) -> str:
    """Return the condition that a request of a claim's spec may be for another class."""
    # A claim without requests has null in their place.
    requests = f"{spec}.?devices.?requests.orValue(null)"
    ways = "(has(r.exactly) ? [r.exactly] : []) + r.?firstAvailable.orValue([])"
    # A JSON list of texts is a CEL literal too.
    known = msgspec.json.encode(sorted(set(others))).decode()
    is_other = f"w.?deviceClassName.orValue('') in {known}"
    asks = f"[{ways}].exists(l, l.size() == 0 || !l.all(w, {is_other}))"
    return f"[{requests}].exists(q, q != null && q.exists(r, {asks}))"

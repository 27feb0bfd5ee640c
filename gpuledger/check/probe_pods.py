"""Probe pods: two pods that are created as dry runs, one to be allowed and one to be denied.

No object is stored: with `dryRun=All` the API server calls its webhooks and discards the pod, and
the ledger records no dry run. The denied pod asks for its memory as `16Gi`, which is not a number
of MiB, so it needs no quota.
"""

import secrets
from enum import StrEnum
from typing import Any, Final

import msgspec

from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.install_findings import Unasked
from gpuledger.check.registered_webhooks import ENTRY_SUFFIX
from ledger.kube.api.api_resources import PODS
from ledger.kube.api.cluster_errors import (
    ClusterError,
    ClusterUnavailable,
    NotFound,
    NotServed,
)
from ledger.kube.vendors.vendors import Vendor

PROBE_SECONDS: Final = 15.0
"""Deadline of one probe; the API server waits for the webhooks for up to 10 s."""

DRY_RUN: Final = {"dryRun": "All"}

_CALLED: Final = "failed calling webhook"
_DENIED: Final = "denied the request"
_CREATE: Final = "cannot create resource"
_UNPRIVILEGED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""As the strictest Pod Security Standard demands, so that no other admission refuses the probe."""


class ProbeOutcome(StrEnum):
    """How the API server answered a dry run."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """Our webhook denied it."""
    NOT_ANSWERED = "not answered"
    """The API server got no answer from our webhook."""
    OTHERWISE = "otherwise"
    """Another admission refused it."""
    NO_NAMESPACE = "no namespace"
    """The namespace of the dry runs does not exist."""
    UNASKED = "unasked"
    """This account may not create pods there, or the API server did not answer."""


class ProbeAnswer(msgspec.Struct, frozen=True):
    """The answer to a dry run, and the API server's message."""

    outcome: ProbeOutcome
    message: str = ""


async def probe(
    questions: ApiQuestions, namespace: str, vendor: Vendor, *, denied: bool
) -> ProbeAnswer:
    """Create a pod as a dry run in a namespace and return the answer."""
    body = msgspec.json.encode(_pod(vendor, denied=denied))
    path = PODS.collection(namespace)
    try:
        await questions.client.request(
            "POST", path, params=DRY_RUN, body=body, seconds=PROBE_SECONDS
        )
    except ClusterError as error:
        outcome = _outcome(error)
        if outcome is ProbeOutcome.UNASKED:
            return ProbeAnswer(outcome, _unasked(questions, path, error).reason)
        return ProbeAnswer(outcome, _message(str(error)))
    return ProbeAnswer(ProbeOutcome.ALLOWED)


def _unasked(questions: ApiQuestions, path: str, error: ClusterError) -> Unasked:
    if isinstance(error, NotServed):
        return Unasked(str(error))
    return questions.failure(path, error)


def _outcome(error: ClusterError) -> ProbeOutcome:
    message = str(error)
    if _CALLED in message and ENTRY_SUFFIX in message:
        return ProbeOutcome.NOT_ANSWERED
    if _DENIED in message and ENTRY_SUFFIX in message:
        return ProbeOutcome.DENIED
    if isinstance(error, NotFound) and not isinstance(error, NotServed):
        return ProbeOutcome.NO_NAMESPACE
    if isinstance(error, ClusterUnavailable | NotServed) or _CREATE in message:
        return ProbeOutcome.UNASKED
    return ProbeOutcome.OTHERWISE


def _message(text: str) -> str:
    """Return the API server's message without the request."""
    return text.partition(": ")[2] or text


def _pod(vendor: Vendor, *, denied: bool) -> dict[str, Any]:
    limits = {"cpu": "10m", "memory": "16Mi"}
    if vendor.count:
        limits[vendor.count] = "1"
    if vendor.memory:
        limits[vendor.memory] = "16Gi" if denied else "1"
    container = {
        "name": "probe",
        "image": "gpuledger-check",
        "resources": {"limits": limits},
        "securityContext": _UNPRIVILEGED,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"gpuledger-check-{secrets.token_hex(4)}"},
        "spec": {"containers": [container], "automountServiceAccountToken": False},
    }

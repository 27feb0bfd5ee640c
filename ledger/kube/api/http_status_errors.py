"""HTTP status errors: the API server's answer to a failed request, mapped to a cluster error."""

from typing import Final

import msgspec

from ledger.kube.api.cluster_errors import (
    AlreadyExists,
    BudgetExhausted,
    ClusterError,
    ClusterUnavailable,
    Forbidden,
    Gone,
    NotFound,
    NotServed,
    Rejected,
    VersionConflict,
)
from ledger.kube.api.objects import ApiStatus
from ledger.kube.api.protobuf_envelope import PREFIX, ObjectDecoder

_CLASSES: Final[dict[int, type[ClusterError]]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    408: ClusterUnavailable,
    409: VersionConflict,
    410: Gone,
    429: ClusterUnavailable,
}

_BUDGET: Final = "DisruptionBudget"
"""The cause that distinguishes a rejected eviction from an overloaded server (both are 429)."""

_statuses: Final = msgspec.json.Decoder(ApiStatus)
_protobuf_statuses: Final = ObjectDecoder(ApiStatus, "Status")


def error_of(what: str, status: int, reason: str | None, body: bytes) -> ClusterError:
    """Return the error for an HTTP status that is not a success.

    `what` names the request; `reason` is HTTP's, used when the body does not decode.
    """
    answer = _status(body)
    message = f"{what} answered {status}: {answer.message or reason or 'no reason given'}"
    if status == 404 and not answer.names_an_object():
        return NotServed(message)
    if status == 409 and answer.reason == "AlreadyExists":
        return AlreadyExists(message)
    if status == 429 and (budget := answer.cause(_BUDGET)) is not None:
        return BudgetExhausted(f"{message} {budget.message}".rstrip())
    if status in _CLASSES:
        return _CLASSES[status](message)
    return Rejected(message, status) if 400 <= status < 500 else ClusterUnavailable(message)


def _status(body: bytes) -> ApiStatus:
    """Decode the body, in protobuf where the request accepts it."""
    decoder = _protobuf_statuses if body.startswith(PREFIX) else _statuses
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ApiStatus()

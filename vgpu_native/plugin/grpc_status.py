"""gRPC status: the statuses by which the plugin rejects a call of the kubelet."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import grpc

from ledger.kube.api.quoting import shown

IDS_SHOWN: Final = 8


class RejectedCall(Exception):
    """A call ends with a status; the message names the field, its value and the remedy."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        """Reject with a gRPC status code."""
        super().__init__(message)
        self.code = code


def bad_request(message: str) -> RejectedCall:
    """Return the rejection of a malformed call."""
    return RejectedCall(grpc.StatusCode.INVALID_ARGUMENT, message)


def unavailable(message: str) -> RejectedCall:
    """Return the rejection of a call that may succeed when the kubelet repeats it."""
    return RejectedCall(grpc.StatusCode.UNAVAILABLE, message)


def failed_precondition(message: str) -> RejectedCall:
    """Return the rejection of a call that fails until an operator or a controller acts."""
    return RejectedCall(grpc.StatusCode.FAILED_PRECONDITION, message)


def shown_ids(ids: Iterable[str]) -> str:
    """Return ids for a status or a log, shortened: a caller may send any number of any length."""
    first = [shown(device) for device in islice(ids, IDS_SHOWN + 1)]
    return ", ".join(first[:IDS_SHOWN] + ["…"] * (len(first) > IDS_SHOWN))

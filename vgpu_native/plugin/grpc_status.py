"""Refusals: what the kubelet is answered instead, as a gRPC status."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import grpc

from ledger.kube.api.quoting import shown

IDS_SHOWN: Final = 8


class RejectedCall(Exception):
    """A call is answered by a status; the text names the field, its value and the remedy."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        """Refuse with a code of gRPC."""
        super().__init__(message)
        self.code = code


def bad_request(message: str) -> RejectedCall:
    """Return the refusal of a call that the kubelet would have to make otherwise."""
    return RejectedCall(grpc.StatusCode.INVALID_ARGUMENT, message)


def unavailable(message: str) -> RejectedCall:
    """Return the refusal of a call that may succeed when it is made again."""
    return RejectedCall(grpc.StatusCode.UNAVAILABLE, message)


def failed_precondition(message: str) -> RejectedCall:
    """Return the refusal of a call that somebody has to do something about."""
    return RejectedCall(grpc.StatusCode.FAILED_PRECONDITION, message)


def shown_ids(ids: Iterable[str]) -> str:
    """Return ids as a status and a log show them: a caller may send any number, of any length."""
    first = [shown(one) for one in islice(ids, IDS_SHOWN + 1)]
    return ", ".join(first[:IDS_SHOWN] + ["…"] * (len(first) > IDS_SHOWN))

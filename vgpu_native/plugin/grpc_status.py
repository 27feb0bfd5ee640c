"""Refusals: what the kubelet is answered instead, as a gRPC status."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import grpc

from ledger.kube.requests.container_requests import shown

IDS_SHOWN: Final = 8


class Refused(Exception):
    """A call is answered by a status; the text names the field, its value and the remedy."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        """Refuse with a code of gRPC."""
        super().__init__(message)
        self.code = code


def bad_request(message: str) -> Refused:
    """Return the refusal of a call that the kubelet would have to make otherwise."""
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_now(message: str) -> Refused:
    """Return the refusal of a call that may succeed when it is made again."""
    return Refused(grpc.StatusCode.UNAVAILABLE, message)


def wrong(message: str) -> Refused:
    """Return the refusal of a call that somebody has to do something about."""
    return Refused(grpc.StatusCode.FAILED_PRECONDITION, message)


def named(ids: Iterable[str]) -> str:
    """Return ids as a status and a log show them: a caller may send any number, of any length."""
    first = [shown(one) for one in islice(ids, IDS_SHOWN + 1)]
    return ", ".join(first[:IDS_SHOWN] + ["…"] * (len(first) > IDS_SHOWN))

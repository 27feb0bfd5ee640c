"""Errors of NATS and of the operating system: their classes, and their texts for people."""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ledger.log.log_port import LogError, Unreachable

ERRORS_MAX: Final = 4
"""Different errors of a client that are kept."""

ERROR_SECONDS: Final = 30.0
"""The same error is logged at most once in so long."""

_NO_GREETING: Final = ("expecting INFO", "info message")
"""Words of the client's errors about a server that does not send NATS, or nothing."""

_NOT_NATS: Final = (
    "accepts connections and does not speak NATS: it is another service's port, or a server that"
    " hangs"
)

_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_CONNECT: Final = re.compile(r"Connect call failed \('([^']+)', (\d+)(?:, \d+, \d+)?\)")
_SOURCE: Final = re.compile(r" \(_[a-z]+\.c:\d+\)")


def plainly(error: BaseException) -> str:
    """Return the text of an error without the numbers and addresses of its implementation."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {_NUMBER.sub('', error.strerror)}"
    number = (error.errno or 0) if isinstance(error, OSError) else 0
    refused = os.strerror(number if number > 0 else errno.ECONNREFUSED)
    text = _CONNECT.sub(rf"\1:\2: {refused}", str(error) or type(error).__name__)
    return tidied(text)


def tidied(text: str) -> str:
    """Return a message without numbers of errors and places in libraries."""
    return _SOURCE.sub("", _NUMBER.sub("", text))


def no_responders_cause(domain: str | None) -> str:
    """Return the likely cause when no client subscribes to a subject of working servers."""
    if domain is None:
        return "no responders"
    return (
        f"no responders: JetStream domain {domain} is out of reach of these servers:"
        " look at their leaf-node connection (/leafz on the monitoring port)"
    )


class Unauthorized(Unreachable):
    """The servers answer, and refuse the credentials; or these cannot be used."""


class Untrusted(Unreachable):
    """The servers answer, and no TLS connection to them can be made."""


class NoResponders(Unreachable):
    """No client subscribes to a subject, as NATS reports (503 No Responders)."""


class ApiError(LogError):
    """JetStream's API answered with an error; `code` is its `err_code`."""

    def __init__(self, subject: str, code: int, *, description: str) -> None:
        super().__init__(f"{subject}: {description} (JetStream error {code})")
        self.code = code
        self.description = description


class ApiProblem(msgspec.Struct, frozen=True):
    """The error part of JetStream's answers."""

    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    error: ApiProblem | None = None


_answers: Final = msgspec.json.Decoder(_Answer)

_CLASSES: Final = (
    (("authorization", "authentication", "permissions violation", "nkey"), Unauthorized),
    (("certificate", "ssl"), Untrusted),
)
"""Words of the client's errors, and the class of a connection that fails with them."""


def raise_api_error(subject: str, answer: bytes) -> None:
    """Raise ApiError if JetStream's answer to a subject is an error."""
    problem = _answers.decode(answer).error
    if problem is not None:
        raise ApiError(subject, problem.err_code, description=problem.description)


def unreachable_class(errors: Iterable[str]) -> type[Unreachable]:
    """Return the class of a connection that cannot be made, by the errors of the client."""
    text = " ".join(errors).lower()
    for words, known in _CLASSES:
        if any(word in text for word in words):
            return known
    return Unreachable


class ClientErrors:
    """The newest different errors of a client, by text: they explain a connection that fails."""

    def __init__(self, connect_seconds: float) -> None:
        """Start empty; a server gets `connect_seconds` to accept a connection and to greet."""
        self._silent = f"a server does not answer in {connect_seconds:g} s"
        self._seen: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def add(self, error: Exception, *, now: float) -> str | None:
        """Keep an error; returns its text, or None when it was added in the last ERROR_SECONDS."""
        text = plainly(error)  # also of a denied publish, whose caller sees a timeout only
        if isinstance(error, TimeoutError):
            text = self._silent
        elif any(words in text for words in _NO_GREETING):
            text = _NOT_NATS
        if now - self._seen.get(text, -ERROR_SECONDS) < ERROR_SECONDS:
            return None
        self._seen[text] = now
        while len(self._seen) > ERRORS_MAX:
            del self._seen[next(iter(self._seen))]
        return text

    def accepted_silently(self, *, now: float) -> None:
        """Keep that a server accepted a connection and sent nothing, if no other error explains."""
        if self._seen.keys() <= {self._silent}:
            self._seen = {_NOT_NATS: now}

    def clear(self) -> None:
        """Forget all errors, as after a connection was made."""
        self._seen.clear()

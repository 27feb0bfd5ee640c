"""Reviews of tokens by the API server, bounded in rate and cached.

A bounded number of answers is cached for a short time; tokens and questions are stored as hashes.
Reviews of tokens that this replica has not accepted recently are limited in rate, per peer and in
all. So a client with a thousand tokens does not cause a thousand requests to the API server.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec

GRANT_SECONDS: Final = 30.0
"""Lifetime of a positive answer: a revoked right or token works for this time."""

REFUSAL_SECONDS: Final = 5.0
"""Lifetime of a negative answer."""

INVALID_SECONDS: Final = 30.0
"""Lifetime of the answer that a token is invalid."""

PROVEN_SECONDS: Final = 3600.0
"""Time for which an accepted token is reviewed without the rate limit."""

REMEMBERED_MAX: Final = 4096
"""Cached answers; the oldest is removed first."""

RATES_MAX: Final = 4096
"""Stored rates, one for each name; the least recently used one is removed first."""

NAME_CHARACTERS_MAX: Final = 253
"""Most characters of a name in a refusal; names of Kubernetes are shorter."""


class Rate(msgspec.Struct, frozen=True):
    """At most `burst` at once, and `per_second` in the long run."""

    burst: float
    per_second: float


UNKNOWN_OF_ALL: Final = Rate(burst=20, per_second=4)
"""Rate of reviews of tokens that were not accepted recently."""

UNKNOWN_OF_ONE: Final = Rate(burst=10, per_second=2)
"""Rate of these reviews for one peer."""

QUESTIONS_OF_ONE: Final = Rate(burst=100, per_second=20)
"""Rate of questions about the rights of one user."""

_EVERYBODY: Final = ""

Caller = TypeVar("Caller")
Value = TypeVar("Value")


class TokenReviewer(Protocol[Caller]):
    """Reviews tokens and their rights: Kubernetes, or a fake.

    Both calls have a deadline, and raise ConnectionError without an answer.
    """

    async def review(self, token: str) -> Caller | None:
        """Return the user of the token, None when it is not valid."""
        ...

    async def may(self, caller: Caller, verb: str, resource: str, namespace: str) -> bool:
        """Return whether the caller may; namespace "" means all namespaces.

        A resource that begins with `/` is a path outside all namespaces, `/metrics` for example.
        """
        ...


class AccessRefusal(msgspec.Struct, frozen=True):
    """A refusal as HTTP status and message."""

    status: int
    error: str


_TOO_MANY: Final = AccessRefusal(
    429, "this replica got too many new tokens, or questions of one user; try again in a second"
)
_NO_CLUSTER: Final = AccessRefusal(403, "without a cluster only loopback clients may read")
_NO_TOKEN: Final = AccessRefusal(
    401, "give a bearer token of this cluster, or connect from loopback"
)
_INVALID: Final = AccessRefusal(401, "the token is not valid in this cluster; get a new one")


class ExpiringCache(Generic[Value]):
    """A bounded number of values, each for a bounded time. The oldest goes first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._values: dict[bytes, tuple[float, Value]] = {}

    def get(self, key: bytes) -> Value | None:
        """Return a value that has not expired, else None."""
        until, value = self._values.get(key, (0.0, None))
        return value if self._clock() < until else None

    def keep(self, key: bytes, value: Value, seconds: float) -> None:
        """Store a value for `seconds`."""
        self._values.pop(key, None)
        if len(self._values) >= REMEMBERED_MAX:
            del self._values[next(iter(self._values))]
        self._values[key] = (self._clock() + seconds, value)


class Rates:
    """One token bucket for each name."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        """Begin with a full bucket for every name."""
        self._rate, self._clock = rate, clock
        self._left: dict[str | bytes, tuple[float, float]] = {}

    def has(self, name: str | bytes) -> bool:
        """Return whether one more is allowed now, without counting it."""
        return self._of(name) >= 1.0

    def take(self, name: str | bytes) -> bool:
        """Count one more, and return whether it is allowed."""
        left = self._of(name)
        self._left.pop(name, None)
        if len(self._left) >= RATES_MAX:
            del self._left[next(iter(self._left))]
        self._left[name] = (left - 1.0 if left >= 1.0 else left, self._clock())
        return left >= 1.0

    def _of(self, name: str | bytes) -> float:
        left, then = self._left.get(name, (self._rate.burst, self._clock()))
        return min(self._rate.burst, left + (self._clock() - then) * self._rate.per_second)


class TokenGuard(Generic[Caller]):
    """Authorizes requests by their tokens."""

    def __init__(
        self,
        reviewer: TokenReviewer[Caller] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use a reviewer; without one every token is refused."""
        self._reviewer = reviewer
        self._callers: ExpiringCache[Caller] = ExpiringCache(clock)
        self._invalid: ExpiringCache[bool] = ExpiringCache(clock)
        self._proven: ExpiringCache[bool] = ExpiringCache(clock)
        self._answers: ExpiringCache[bool] = ExpiringCache(clock)
        self._of_all = Rates(UNKNOWN_OF_ALL, clock)
        self._of_one = Rates(UNKNOWN_OF_ONE, clock)
        self._questions = Rates(QUESTIONS_OF_ONE, clock)
        self._reviews: dict[bytes, asyncio.Task[Caller | None]] = {}

    async def refusal(
        self, token: str, verb: str, resource: str, namespace: str, peer: str = ""
    ) -> AccessRefusal | None:
        """Return why a request with this token is refused, None when it is granted.

        `peer` is the client's address.
        """
        caller = await self.caller(token, peer)
        if isinstance(caller, AccessRefusal):
            return caller
        return await self.refusal_of(caller, verb, resource, namespace)

    async def caller(self, token: str, peer: str = "") -> Caller | AccessRefusal:
        """Return the user of a token, or why it is refused. `peer` is the client's address."""
        if self._reviewer is None:
            return _NO_CLUSTER
        if not token:
            return _NO_TOKEN
        digest = hashlib.sha256(token.encode()).digest()
        try:
            return await self._caller(self._reviewer, token, digest, peer)
        except ConnectionError as error:
            return _unreviewed(error)

    async def refusal_of(
        self, caller: Caller, verb: str, resource: str, namespace: str
    ) -> AccessRefusal | None:
        """Return why a request of this user is refused, None when it is granted.

        The user is one of `caller`, or was authenticated by a trusted proxy.
        """
        if self._reviewer is None:
            return _NO_CLUSTER
        digest = hashlib.sha256(msgspec.msgpack.encode(caller)).digest()
        question = _digest(digest, verb, resource, namespace)
        allowed = self._answers.get(question)
        if allowed is None:
            if not self._questions.take(digest):
                return _TOO_MANY
            try:
                allowed = await self._reviewer.may(caller, verb, resource, namespace)
            except ConnectionError as error:
                return _unreviewed(error)
            self._answers.keep(question, allowed, GRANT_SECONDS if allowed else REFUSAL_SECONDS)
        return None if allowed else _denied(verb, resource, namespace)

    async def _caller(
        self, reviewer: TokenReviewer[Caller], token: str, digest: bytes, peer: str
    ) -> Caller | AccessRefusal:
        """Return the user of a token. Requests with one token share one review."""
        if self._invalid.get(digest):
            return _INVALID
        caller = self._callers.get(digest)
        if caller is not None:
            return caller
        task = self._reviews.get(digest)
        if task is None:
            if not self._may_review(digest, peer):
                return _TOO_MANY
            task = asyncio.create_task(self._review(reviewer, token, digest))
            self._reviews[digest] = task
            task.add_done_callback(lambda _: self._reviews.pop(digest, None))
        reviewed = await asyncio.shield(task)
        return _INVALID if reviewed is None else reviewed

    async def _review(
        self, reviewer: TokenReviewer[Caller], token: str, digest: bytes
    ) -> Caller | None:
        caller = await reviewer.review(token)
        if caller is None:
            self._invalid.keep(digest, True, INVALID_SECONDS)
        else:
            self._callers.keep(digest, caller, GRANT_SECONDS)
            self._proven.keep(digest, True, PROVEN_SECONDS)
        return caller

    def _may_review(self, digest: bytes, peer: str) -> bool:
        if self._proven.get(digest):
            return True
        # A peer over its own rate does not use the common rate.
        return self._of_one.take(peer) and self._of_all.take(_EVERYBODY)


def _unreviewed(error: ConnectionError) -> AccessRefusal:
    return AccessRefusal(503, f"the user's rights cannot be reviewed: {error}; try again")


def _denied(verb: str, resource: str, namespace: str) -> AccessRefusal:
    if resource.startswith("/"):
        return AccessRefusal(
            403, f"you may not {verb} the path {resource}; ask for a role that allows it"
        )
    name, of = namespace[:NAME_CHARACTERS_MAX], resource[:NAME_CHARACTERS_MAX]
    where = f"in namespace {name}" if name else "in all namespaces"
    return AccessRefusal(
        403, f"you may not {verb} {of}.gpuledger.io {where}; ask for a role that allows it"
    )


def _digest(caller: bytes, *parts: str) -> bytes:
    return hashlib.sha256(caller + "\0".join(parts).encode()).digest()

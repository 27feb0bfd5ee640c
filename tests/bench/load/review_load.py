"""Review load: a load generator that posts reviews over keep-alive TLS connections.

It runs in a separate process and does little work, so that the service is measured and not the
client. It joins requests from prepared pieces and counts only the denials among the answers.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from ledger.runtime import gc_tuning
from tests.bench.harness.fresh_process import percentile
from tests.bench.load.send_moments import Outcome, SendMoments

RECORDED = Path(__file__).parents[2] / "fixtures" / "admission" / "pod-create.json"
CONNECTIONS: Final = 256
LATE_SECONDS: Final = 10.0
"""How long answers may take after the last request was sent."""

_LENGTH: Final = b"content-length: "
_UID, _NAME, _NAMESPACE = "{{pod-uid}}", "{{pod-name}}", "{{namespace}}"
_CALL = "{{call-uid}}"


class Review:
    """A recorded review of a new pod, again and again with fresh names and uids."""

    def __init__(self, namespaces: int) -> None:
        """Make reviews of pods in so many namespaces."""
        self._namespaces = namespaces
        pieces = _template().replace("{{", "\0{{").replace("}}", "}}\0").split("\0")
        self._pieces = [piece.encode() for piece in pieces]

    def requests(self, count: int, first: int) -> Iterator[bytes]:
        """Yield whole HTTP requests, the numbers of their pods beginning with `first`."""
        for number in range(first, first + count):
            namespace = f"team-{number % self._namespaces}"
            fields = {
                _UID.encode(): f"8a6a520b-d230-45e4-a1f4-{number:012x}",
                _NAME.encode(): f"worker-{number:08x}",
                _NAMESPACE.encode(): namespace,
                _CALL.encode(): f"678ec104-fe57-4d05-bdfe-{number:012x}",
            }
            body = b"".join(
                fields[piece].encode() if piece in fields else piece for piece in self._pieces
            )
            yield (
                b"POST /admission/validate?timeout=10s HTTP/1.1\r\nhost: gpuledger\r\n"
                b"content-type: application/json\r\naccept: application/json, */*\r\n"
                b"user-agent: kube-apiserver-admission\r\n"
                b"content-length: %d\r\n\r\n" % len(body)
            ) + body


class ReviewConnection(asyncio.Protocol):
    """One connection, one request at a time. `done` is called with each answer's verdict."""

    def __init__(self, pool: "ConnectionPool") -> None:
        self._pool = pool
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = transport  # type: ignore[assignment]

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        head = data.find(b"\r\n\r\n")
        at = data.find(_LENGTH, 0, head)
        if head < 0 or at < 0:
            self._buffer = data
            return
        length = int(data[at + len(_LENGTH) : data.index(b"\r", at)])
        if len(data) < head + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        self._pool.answered(self, b'"allowed":true' in data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.lost += 1


class ConnectionPool:
    """Connections that are kept busy, or are used when it is time for the next request.

    `seconds` are the times to the answers. At fixed moments they begin with these, and `late` is
    how much later each request was sent.
    """

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._idle: deque[ReviewConnection] = deque()
        self._sent: dict[ReviewConnection, float] = {}
        self.seconds: list[float] = []
        self.late: list[float] = []
        self.allowed = self.lost = 0
        self.closed_loop = False
        self.finished = asyncio.Event()

    async def connect(self, host: str, port: int, trusted: str, connections: int) -> None:
        """Open all connections."""
        context = ssl.create_default_context(cafile=trusted)
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, visitor = await loop.create_connection(
                lambda: ReviewConnection(self), host, port, ssl=context, server_hostname="127.0.0.1"
            )
            self._idle.append(visitor)

    def answered(self, visitor: ReviewConnection, allowed: bool) -> None:
        """Take an answer; in a closed loop the next request goes at once."""
        now = time.perf_counter()
        self.seconds.append(now - self._sent.pop(visitor))
        self.allowed += allowed
        if not (self.closed_loop and self._send(visitor, now)):
            self._idle.append(visitor)
            if not self._sent:
                self.finished.set()

    async def busily(self) -> float:
        """Send everything as fast as answers come; returns the seconds it took."""
        started = time.perf_counter()
        self.closed_loop = True
        while self._idle and self._send(self._idle.popleft(), started):
            pass
        await self.finished.wait()
        return time.perf_counter() - started

    async def paced(self, per_second: float) -> None:
        """Send at fixed moments, without waiting for answers; the sender's lateness counts, too.

        A moment without an idle connection is late, until there is one.
        """
        await SendMoments(per_second, self._send_due).run()
        async with asyncio.timeout(LATE_SECONDS):
            await self.finished.wait()

    def _send_due(self, moment: float) -> Outcome:
        """Send the request of a moment, if there is a connection for it."""
        if not self._idle:
            return Outcome.LATER
        self.late.append(time.perf_counter() - moment)
        return Outcome.SENT if self._send(self._idle.popleft(), moment) else Outcome.LAST

    def _send(self, visitor: ReviewConnection, at: float) -> bool:
        request = next(self._requests, None)
        if request is None:
            return False
        self.finished.clear()
        self._sent[visitor] = at
        visitor.send(request)
        return True


async def post_reviews(
    address: str,
    store: str,
    count: int,
    first: int,
    per_second: float = 0.0,
) -> dict[str, float]:
    """Post so many reviews, as fast as they are answered or so many per second.

    `late_p99` is by how much the load generator itself is late, at so many per second.
    """
    host, _, port = address.rpartition(":")
    requests = list(Review(namespaces=1_000).requests(count, first))
    gc_tuning.freeze_existing()
    pool = ConnectionPool(iter(requests))
    await pool.connect(host, int(port), str(Path(store, "tls", "ca.crt")), CONNECTIONS)
    computed = time.process_time()
    seconds = count / per_second if per_second else 0.0
    if per_second:
        await pool.paced(per_second)
    else:
        seconds = await pool.busily()
    assert pool.allowed == count, f"{pool.allowed} of {count} were allowed"
    assert not pool.lost, f"{pool.lost} connections were closed by the service"
    return {
        "per_second": count / seconds,
        "p50": percentile(pool.seconds, 0.50),
        "p99": percentile(pool.seconds, 0.99),
        "late_p99": percentile(pool.late or [0.0], 0.99),
        "computed": (time.process_time() - computed) / count,
    }


def _template() -> str:
    """Return the recorded body as compact JSON with a mark for everything that has to be fresh."""
    calls = msgspec.json.decode(RECORDED.read_bytes())["calls"]
    review = next(call["review"] for call in calls if call["webhook"] == "validate")
    request, pod = review["request"], review["request"]["object"]
    request.update(uid=_CALL, name=_NAME, namespace=_NAMESPACE)
    pod["metadata"].update(name=_NAME, namespace=_NAMESPACE, uid=_UID)
    return msgspec.json.encode(review).decode()

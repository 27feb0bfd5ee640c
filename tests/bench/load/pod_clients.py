"""Pod clients: each posts one pod after the other to an API server, on a connection of its own.

They run in a separate process and read only the status of an answer, so that the measurement is of
the API server and its webhooks.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ledger.runtime import gc_tuning
from tests.bench.objects.fleet import Template
from tests.e2e.objects.pods import CARDS, pod

CLIENTS: Final = 32
ANSWER_SECONDS_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 2**20

SCHEDULER: Final = "gpuledger-scheduler"

CREATED, FORBIDDEN, CONFLICT = 201, 403, 409

_NAME: Final = "{{name}}"
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
_LENGTH: Final = b"content-length: "


async def post(
    address: str,
    ca: str,
    token: str,
    namespace: str,
    first: int,
    count: int,
    complete: bool = True,
) -> dict[str, float]:
    """Create so many pods; returns seconds and how many were answered with which status.

    Without `complete`, a pod names gpuledger's scheduler and leaves out the count of cards, so that
    the mutating webhook has to complete it.
    Raises AssertionError when the API server gave any other answer than created, forbidden or
    conflict.
    """
    template = pod(_NAME)
    if not complete:
        template["spec"]["schedulerName"] = SCHEDULER
        del template["spec"]["containers"][0]["resources"]["limits"][CARDS]
    numbers = range(first, first + count)
    requests = _requests(address, token, namespace, Template(template), numbers)
    host, _, port = address.partition(":")
    trusted = ssl.create_default_context(cafile=ca)
    connections = [
        await asyncio.open_connection(host, int(port), ssl=trusted, limit=ANSWER_BYTES_MAX)
        for _ in range(CLIENTS)
    ]
    gc_tuning.freeze_existing()
    answers: Counter[int] = Counter()
    started = time.perf_counter()
    await asyncio.gather(*(_client(*connection, requests, answers) for connection in connections))
    seconds = time.perf_counter() - started
    for _, writer in connections:
        writer.close()
    known = answers[CREATED] + answers[FORBIDDEN] + answers[CONFLICT]
    assert known == count, f"answers by status: {dict(answers)}"
    return {
        "seconds": seconds,
        "created": answers[CREATED],
        "forbidden": answers[FORBIDDEN],
        "conflicts": answers[CONFLICT],
    }


async def _client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    requests: Iterator[bytes],
    answers: Counter[int],
) -> None:
    for request in requests:
        writer.write(request)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            answers[await _status(reader)] += 1


async def _status(reader: asyncio.StreamReader) -> int:
    """Read one answer and return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        await reader.readuntil(_LAST_CHUNK)  # JSON has no bare line breaks
    else:
        at = head.index(_LENGTH) + len(_LENGTH)
        await reader.readexactly(int(head[at : head.index(b"\r", at)]))
    return int(head.split(b" ", 2)[1])


def _requests(
    address: str, token: str, namespace: str, template: Template, numbers: range
) -> Iterator[bytes]:
    """Return whole HTTP requests, made beforehand."""
    made = []
    for number in numbers:
        body = template.filled({_NAME.encode(): b"p-%d" % number})
        head = (
            f"POST /api/v1/namespaces/{namespace}/pods HTTP/1.1\r\nHost: {address}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return iter(made)

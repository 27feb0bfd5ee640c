"""Clients: each posts one pod, or claim, after the other to an API server, on its own connection.

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
from tests.e2e.harness.cluster import Manifest
from tests.e2e.objects.pods import CARDS, pod

CLIENTS: Final = 32
ANSWER_SECONDS_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 2**20

SCHEDULER: Final = "gpuledger-scheduler"

OK, CREATED, FORBIDDEN, CONFLICT = 200, 201, 403, 409

NAME: Final = "{{name}}"
OWNER: Final = "{{owner}}"
"""Marks in a template: the object's name, and the uid of the pod that owns it."""

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
    template = pod(NAME)
    if not complete:
        template["spec"]["schedulerName"] = SCHEDULER
        del template["spec"]["containers"][0]["resources"]["limits"][CARDS]
    path = f"/api/v1/namespaces/{namespace}/pods"
    objects = {f"p-{number}": "" for number in range(first, first + count)}
    return await post_each(address, ca, token, path=path, template=template, objects=objects)


async def post_each(
    address: str,
    ca: str,
    token: str,
    *,
    path: str,
    template: Manifest,
    objects: dict[str, str],
    part: str = "",
) -> dict[str, float]:
    """Create an object of each name; the template has marks for the name and an owner's uid.

    With `part`, the template is merged into that part of an object that is there, such as "status".

    Returns and raises like `post`.
    """
    filled = Template(template)
    requests = [
        _request(
            *(("PATCH", f"{path}/{name}/{part}") if part else ("POST", path)),
            host=address,
            token=token,
            body=filled.filled({NAME.encode(): name.encode(), OWNER.encode(): owner.encode()}),
        )
        for name, owner in objects.items()
    ]
    host, _, port = address.partition(":")
    trusted = ssl.create_default_context(cafile=ca)
    connections = [
        await asyncio.open_connection(host, int(port), ssl=trusted, limit=ANSWER_BYTES_MAX)
        for _ in range(CLIENTS)
    ]
    waiting = iter(requests)
    gc_tuning.freeze_existing()
    answers: Counter[int] = Counter()
    started = time.perf_counter()
    await asyncio.gather(*(_client(*connection, waiting, answers) for connection in connections))
    seconds = time.perf_counter() - started
    for _, writer in connections:
        writer.close()
    known = answers[OK] + answers[CREATED] + answers[FORBIDDEN] + answers[CONFLICT]
    assert known == len(objects), f"answers by status: {dict(answers)}"
    return {
        "seconds": seconds,
        "created": answers[CREATED],
        "changed": answers[OK],
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


def _request(method: str, path: str, *, host: str, token: str, body: bytes) -> bytes:
    """Return a whole HTTP request."""
    kind = "application/json" if method == "POST" else "application/merge-patch+json"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: {kind}\r\n"
        f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body

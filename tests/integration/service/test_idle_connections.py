"""Anonymous clients that keep connections open do not stop the reviews of the API server."""

import asyncio
import contextlib
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from cryptography.x509.oid import NameOID
from support.servers import anonymous_connections
from support.servers.service_process import ServiceProcess, creation
from support.servers.tls_server import ClientAuthority

REVIEW_SECONDS = 10.0
"""How long the API server waits for a webhook."""

GATHERING_SECONDS = 120.0
PAUSE_SECONDS = 0.02
FRESH = 5
"""Every so many-th review comes on a connection of its own."""


@pytest.fixture
def authority(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path / "clients")


@pytest.fixture
def service(tmp_path: Path, authority: ClientAuthority) -> Iterator[ServiceProcess]:
    """A service that takes reviews from clients with a certificate only."""
    process = ServiceProcess(
        tmp_path / "store",
        f"--client-ca={authority.file}",
        "--client-subjects=CN=apiserver",
    )
    process.start()
    yield process
    process.kill()


@contextlib.contextmanager
def besieged(
    service: ServiceProcess, count: int, addresses: int, *kinds: str
) -> Iterator[list[int]]:
    """Hold anonymous connections for the time of a block; gives how many were made."""
    made: list[int] = []
    program = [sys.executable, anonymous_connections.__file__]
    numbers = [str(number) for number in (service.port, count, addresses)]
    with subprocess.Popen([*program, *numbers, *kinds], stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdout is not None
        try:
            assert crowd.stdout.readline() == "ready\n"
            yield made
        finally:
            crowd.terminate()
            made.append(int(crowd.stdout.readline() or 0))


def certified(service: ServiceProcess, authority: ClientAuthority) -> ssl.SSLContext:
    context = service.tls()
    context.load_cert_chain(authority.issue((NameOID.COMMON_NAME, "apiserver")))
    return context


async def review(client: httpx2.AsyncClient, number: int) -> bool:
    """Return whether a review is answered, and allowed."""
    try:
        answer = await client.post("/admission/validate", json=creation(f"p-{number}"))
    except httpx2.HTTPError:
        return False
    return answer.status_code == 200 and bool(answer.json()["response"]["allowed"])


async def reviewed(service: ServiceProcess, context: ssl.SSLContext, count: int) -> list[float]:
    """Send reviews one by one; return the seconds of those that were answered, sorted."""
    took = []

    def client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=service.url, verify=context, timeout=REVIEW_SECONDS)

    async with client() as kept:
        for number in range(count):
            began = time.monotonic()
            if number % FRESH:
                answered = await review(kept, number)
            else:
                async with client() as fresh:
                    answered = await review(fresh, number)
            if answered:
                took.append(time.monotonic() - began)
            await asyncio.sleep(PAUSE_SECONDS)
    return sorted(took)


def probed(service: ServiceProcess) -> int:
    """Ask as a kubelet does, without a certificate."""
    return httpx2.get(
        f"{service.url}/readyz", verify=service.tls(), timeout=REVIEW_SECONDS
    ).status_code


async def test_reviews_are_answered_while_anonymous_clients_hold_connections(
    service: ServiceProcess, authority: ClientAuthority
) -> None:
    context = certified(service, authority)
    with besieged(service, 700, 7, *anonymous_connections.KINDS) as made:
        took = await reviewed(service, context, 30)
        assert await asyncio.to_thread(probed, service) == 200
    assert len(took) == 30
    assert made[0] > 700, "strangers were turned away and came again"


@pytest.mark.long
@pytest.mark.parametrize("addresses", [1, 40])
async def test_five_thousand_anonymous_clients_do_not_stop_two_hundred_reviews(
    service: ServiceProcess,
    authority: ClientAuthority,
    addresses: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    context = certified(service, authority)
    calm = await reviewed(service, context, 50)
    with besieged(service, 5_000, addresses, *anonymous_connections.KINDS) as made:
        took = await reviewed(service, context, 200)
        assert await asyncio.to_thread(probed, service) == 200
    with capsys.disabled():
        halves = [
            f"{seconds[len(seconds) // 2] * 1e3:.1f} ms" for seconds in (calm, took) if seconds
        ]
        print(f"\n{len(took)} of 200 reviews, median {halves}, {made[0]} connections made")
    assert len(took) == 200

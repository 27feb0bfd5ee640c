"""Certificate and key are replaced one after the other while clients connect, and all get in."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from support.servers.tls_server import DEADLINE_SECONDS, answer_scope, serving_at

from ledger.runtime.tls import certificate_reload, server_certificate
from ledger.runtime.tls.server_certificate import CertificateFiles

CLIENTS = 4


def pairs(directory: Path) -> list[tuple[bytes, bytes]]:
    """Return two certificates, with their chains, of one CA, and their keys."""
    made = []
    for _ in range(2):
        files = server_certificate.ensure(directory, (), server_certificate.utc_now())
        text = Path(files.certificate).read_bytes()
        chain, mark, key = text.partition(b"-----BEGIN PRIVATE KEY-----")
        made.append((chain, mark + key))
        Path(files.certificate).unlink()
    return made


def put(path: Path, content: bytes) -> None:
    scratch = path.with_name(f".{path.name}")
    scratch.write_bytes(content)
    scratch.rename(path)


class Visits:
    """Handshakes of many clients, one connection each."""

    def __init__(self, address: str, authority: Path) -> None:
        host, _, port = address.rpartition(":")
        self._where = (host, int(port))
        self._context = ssl.create_default_context(cafile=str(authority))
        self.done, self.failed = 0, list[str]()

    async def until(self, count: int) -> None:
        """Connect until so many were tried."""

        async def visit() -> None:
            while self.done < count:
                self.done += 1
                try:
                    async with asyncio.timeout(DEADLINE_SECONDS):
                        _, writer = await asyncio.open_connection(*self._where, ssl=self._context)
                    writer.transport.abort()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
                except (OSError, TimeoutError) as error:
                    self.failed.append(f"{type(error).__name__}: {error}")

        await asyncio.gather(*(visit() for _ in range(CLIENTS)))


async def swapping(paths: CertificateFiles, made: list[tuple[bytes, bytes]]) -> None:
    """Replace both files, with a pause between them in which they do not belong together."""
    turn = 0
    while True:
        turn += 1
        certificate, key = made[turn % 2]
        replacements = [(paths.certificate, certificate), (paths.key, key)]
        for path, content in replacements if turn % 4 < 2 else reversed(replacements):
            put(Path(path), content)
            await asyncio.sleep(0.03)


@pytest.mark.parametrize(
    "handshakes", [400, pytest.param(3_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
async def test_no_handshake_fails_while_files_are_replaced(handshakes: int, tmp_path: Path) -> None:
    directory = tmp_path / "made"
    made = pairs(directory)
    paths = CertificateFiles(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), "")
    for path, content in zip((paths.certificate, paths.key), made[0], strict=True):
        put(Path(path), content)
    secured = certificate_reload.Tls(certificate_reload.given(paths.certificate, paths.key))
    reported: list[str] = []
    loaded = secured.context
    async with serving_at(answer_scope, secured) as address:
        tasks = [
            asyncio.create_task(secured.keep_fresh(reported.append, every_seconds=0.01)),
            asyncio.create_task(swapping(paths, made)),
        ]
        visits = Visits(address, directory / "ca.crt")
        await visits.until(handshakes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert visits.failed == [], f"{len(visits.failed)} of {visits.done} handshakes failed"
    assert any("is not the key" in problem for problem in reported), "no half of a swap was seen"
    assert secured.context is not loaded, "nothing was taken up"

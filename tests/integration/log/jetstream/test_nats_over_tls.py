"""A login for NATS is sent over TLS only, where the settings ask for TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.servers.nats_servers import NatsServer
from support.servers.ports import free_port

from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.nats_errors import Unauthorized, Untrusted
from ledger.log.log_port import Unreachable
from ledger.runtime.tls import server_certificate
from ledger.runtime.tls.server_certificate import CertificateFiles

pytestmark = pytest.mark.integration

PASSWORD = "correct-horse-battery"
USERS = f'authorization {{ user: "ledger", password: "{PASSWORD}" }}'
INFO = (
    b'INFO {"server_id":"x","version":"2.15.1","proto":1,"headers":true,"max_payload":1048576,'
    b'"auth_required":true}\r\n'
)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    """Certificate and key for a server on loopback, and the CA that signed it."""
    return server_certificate.ensure(tmp_path / "tls", (), server_certificate.utc_now())


@contextlib.asynccontextmanager
async def plain_server(port: int) -> AsyncIterator[bytearray]:
    """A server that offers no TLS; yields what clients send to it."""
    received = bytearray()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while data := await reader.read(65_536):
            received.extend(data)
            writer.write(b"PONG\r\n")
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", port):
        yield received


@pytest.mark.parametrize("scheme", ["tls", "nats"])
@pytest.mark.parametrize("kind", ["password", "login", "address"])
async def test_a_server_without_tls_gets_no_login(
    scheme: str, kind: str, files: CertificateFiles, tmp_path: Path
) -> None:
    port, login = free_port(), tmp_path / "login"
    login.write_text(f"ledger:{PASSWORD}\n")
    given = {
        "password": {"user": "ledger", "password": PASSWORD},
        "login": {"login": str(login)},
        "address": {},
    }[kind]
    who = f"ledger:{PASSWORD}@" if kind == "address" else ""
    access = Access((f"{scheme}://{who}127.0.0.1:{port}",), ca=files.authority, **given)
    async with plain_server(port) as received:
        with pytest.raises(Unreachable, match="offers no TLS, so no login was sent"):
            await NatsConnection.connect(access, deadline=1.5)
    assert PASSWORD.encode() not in received
    assert b"CONNECT" not in received


async def test_the_address_alone_asks_for_tls() -> None:
    port = free_port()
    access = Access((f"tls://127.0.0.1:{port}",), user="ledger", password=PASSWORD)
    async with plain_server(port) as received:
        with pytest.raises(Unreachable, match="offers no TLS"):
            await NatsConnection.connect(access, deadline=1.5)
    assert not received


async def test_without_tls_in_the_settings_a_login_is_sent() -> None:
    port = free_port()
    access = Access((f"nats://127.0.0.1:{port}",), user="ledger", password=PASSWORD)
    async with plain_server(port) as received:
        connection = await NatsConnection.connect(access, deadline=10)
        await connection.close()
    assert PASSWORD.encode() in received


@pytest.fixture
async def tls_server(tmp_path: Path, files: CertificateFiles) -> AsyncIterator[NatsServer]:
    """A nats-server with TLS and one user."""
    tls = f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}" }}'
    server = NatsServer(tmp_path / "nats", extra=f"{USERS}\n{tls}")
    await server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_server_with_tls_and_the_right_ca_gets_the_login(
    scheme: str, tls_server: NatsServer, files: CertificateFiles, tmp_path: Path
) -> None:
    login = tmp_path / "login"
    login.write_text(f"ledger:{PASSWORD}\n")
    url = f"{scheme}://127.0.0.1:{tls_server.port}"
    access = Access((url,), login=str(login), ca=files.authority)
    connection = await NatsConnection.connect(access, deadline=10)
    assert b"streams" in await connection.api("INFO")
    await connection.close()


@pytest.mark.parametrize("user", ["ledger", "nobody"])
async def test_a_wrong_password_is_distinguished_from_a_wrong_address(
    user: str, tls_server: NatsServer, files: CertificateFiles
) -> None:
    url = f"nats://127.0.0.1:{tls_server.port}"
    access = Access((url,), user=user, password="wrong", ca=files.authority)
    with pytest.raises(Unauthorized, match="Authorization Violation"):
        await NatsConnection.connect(access, deadline=3)
    away = Access((f"nats://127.0.0.1:{free_port()}",), user=user, password="wrong")
    with pytest.raises(Unreachable, match="Connection refused") as met:
        await NatsConnection.connect(away, deadline=1.5)
    assert not isinstance(met.value, Unauthorized)


async def test_a_server_of_another_ca_gets_no_login(tls_server: NatsServer, tmp_path: Path) -> None:
    other = server_certificate.ensure(tmp_path / "other", (), server_certificate.utc_now())
    url = f"nats://127.0.0.1:{tls_server.port}"
    access = Access((url,), user="ledger", password=PASSWORD, ca=other.authority)
    with pytest.raises(Untrusted, match="certificate"):
        await NatsConnection.connect(access, deadline=1.5)


@pytest.mark.parametrize("text", ["", "ledger", "ledger:", ":secret", "one:two\nthree:four"])
async def test_a_file_that_holds_no_login_is_named(text: str, tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text(text)
    with pytest.raises(Unreachable, match=r"login: is not one line USER:PASSWORD"):
        await NatsConnection.connect(Access(("nats://127.0.0.1:9",), login=str(login)), deadline=2)


async def test_a_login_file_that_is_missing_is_named(tmp_path: Path) -> None:
    access = Access(("nats://127.0.0.1:9",), login=str(tmp_path / "none"))
    with pytest.raises(Unreachable, match=r"none: cannot be read .* check the file"):
        await NatsConnection.connect(access, deadline=2)

"""Certificates that change under a running server."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from cryptography.x509.oid import NameOID
from support.servers.tls_server import (
    DEADLINE_SECONDS,
    ClientAuthority,
    answer_scope,
    get,
    serving_at,
    visitor,
)

from ledger.runtime.http import acceptor
from ledger.runtime.http.acceptor import HANDSHAKES, Acceptor
from ledger.runtime.tls import certificate_reload, server_certificate
from ledger.runtime.tls.certificate_authority import CertificateError
from ledger.runtime.tls.server_certificate import CertificateFiles

Find = Callable[[], server_certificate.CertificateFiles]


async def served_certificate(address: str) -> str:
    """Fetch the certificate that a new connection gets."""
    host, _, port = address.rpartition(":")
    return await asyncio.to_thread(
        ssl.get_server_certificate, (host, int(port)), timeout=DEADLINE_SECONDS
    )


def replace(path: str, text: str) -> None:
    """Replace a file at once, as those do that renew certificates."""
    written = Path(f"{path}.new")
    written.write_text(text)
    written.replace(path)


def content(path: str) -> str:
    return Path(path).read_text()


async def test_the_certificate_is_trusted_with_the_ca_of_the_store(
    own: Find, tmp_path: Path
) -> None:
    async with serving_at(answer_scope, certificate_reload.Tls(own)) as address:
        status, body = await get(f"https://{address}/", visitor(tmp_path))
    assert (status, body["scheme"]) == (200, "https")


async def test_a_changed_certificate_is_served_without_a_restart(own: Find, tmp_path: Path) -> None:
    secured = certificate_reload.Tls(own)
    async with serving_at(answer_scope, secured) as address:
        before = await served_certificate(address)
        (tmp_path / "tls" / "server.pem").unlink()
        assert secured.refresh()
        after = await served_certificate(address)
        assert (await get(f"https://{address}/", visitor(tmp_path)))[0] == 200
    assert after != before


async def test_files_that_did_not_change_are_not_loaded_again(own: Find) -> None:
    secured = certificate_reload.Tls(own)
    assert not secured.refresh()


async def test_a_broken_file_is_reported_and_the_old_certificate_stays(
    own: Find, tmp_path: Path
) -> None:
    files = own()
    secured = certificate_reload.Tls(certificate_reload.given(files.certificate, files.key))
    reported: asyncio.Queue[str] = asyncio.Queue()
    keeping = asyncio.create_task(secured.keep_fresh(reported.put_nowait, every_seconds=0.01))
    async with serving_at(answer_scope, secured) as address:
        before = await served_certificate(address)
        replace(files.certificate, "half a certif")
        async with asyncio.timeout(DEADLINE_SECONDS):
            problem = await reported.get()
        assert await served_certificate(address) == before
    keeping.cancel()
    assert "server.pem: holds no PEM certificate" in problem


async def test_a_problem_is_reported_when_it_begins_and_not_at_every_look(own: Find) -> None:
    files = own()
    looks = ["", "one", "one", "two", "", "two"]
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def find() -> CertificateFiles:
        if not looks:
            loop.call_soon_threadsafe(over.set)
        problem = looks.pop(0) if looks else ""
        if problem:
            raise CertificateError(problem)
        return files

    reported: list[str] = []
    secured = certificate_reload.Tls(find)
    keeping = asyncio.create_task(secured.keep_fresh(reported.append, every_seconds=0.001))
    await asyncio.wait_for(over.wait(), DEADLINE_SECONDS)
    keeping.cancel()
    assert reported == ["one", "two", "two"]


async def test_files_of_a_ca_that_clients_do_not_trust_yet_are_loaded_later(
    own: Find, tmp_path: Path
) -> None:
    files, trusted, looked = own(), [False], asyncio.Event()
    other = server_certificate.ensure(tmp_path / "other", (), server_certificate.utc_now())
    secured = certificate_reload.Tls(certificate_reload.given(files.certificate, files.key))
    before = secured.context

    def is_trusted() -> bool:
        looked.set()
        return trusted[-1]

    keeping = asyncio.create_task(
        secured.keep_fresh(print, every_seconds=0.001, is_trusted=is_trusted)
    )
    replace(files.certificate, content(other.certificate))
    for _ in range(3):
        looked.clear()
        await asyncio.wait_for(looked.wait(), DEADLINE_SECONDS)
    assert secured.context is before
    trusted.append(True)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while secured.context is before:  # noqa: ASYNC110 - another task loads
            await asyncio.sleep(0.001)
    keeping.cancel()


async def test_a_client_ca_changes_while_the_files_of_a_new_ca_wait(
    own: Find, tmp_path: Path
) -> None:
    files = own()
    first, second = (ClientAuthority(tmp_path / name) for name in ("first", "second"))
    other = server_certificate.ensure(tmp_path / "other", (), server_certificate.utc_now())
    given = certificate_reload.given(files.certificate, files.key)
    secured = certificate_reload.Tls(given, first.file)
    old, new = (
        visitor(tmp_path, each.issue((NameOID.COMMON_NAME, "reviewer"))) for each in (first, second)
    )
    before, served = secured.authorities, content(files.certificate)
    keeping = asyncio.create_task(
        secured.keep_fresh(print, every_seconds=0.001, is_trusted=lambda: False)
    )
    async with serving_at(answer_scope, secured) as address:
        replace(files.certificate, content(other.certificate))
        replace(first.file, content(second.file))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while secured.authorities is before:  # noqa: ASYNC110 - another task loads
                await asyncio.sleep(0.001)
        assert await served_certificate(address) in served
        assert (await get(f"https://{address}/", new))[0] == 200
        with pytest.raises((OSError, aiohttp.ClientError)):
            await get(f"https://{address}/", old)
    keeping.cancel()


async def test_a_mended_file_is_loaded_after_a_broken_one(own: Find, tmp_path: Path) -> None:
    files = own()
    secured = certificate_reload.Tls(certificate_reload.given(files.certificate, files.key))
    other = server_certificate.ensure(tmp_path / "other", (), server_certificate.utc_now())
    replace(files.certificate, "half a certif")
    with pytest.raises(CertificateError):
        secured.refresh()
    replace(files.certificate, content(other.certificate))
    assert secured.refresh()


async def test_a_mounted_secret_that_swaps_its_link_is_noticed(tmp_path: Path, own: Find) -> None:
    own()
    other = server_certificate.ensure(tmp_path / "other", (), server_certificate.utc_now())
    link = tmp_path / "mounted"
    link.symlink_to(tmp_path / "tls")
    path = str(link / "server.pem")
    secured = certificate_reload.Tls(certificate_reload.given(path, path))
    replacement = tmp_path / "replacement"
    replacement.symlink_to(Path(other.certificate).parent)
    replacement.rename(link)
    assert secured.refresh()


async def test_the_end_of_the_served_certificate_is_known(own: Find) -> None:
    secured = certificate_reload.Tls(own)
    assert secured.expires_at == server_certificate.expires_at(Path(own().certificate))


async def test_a_client_ca_that_cannot_be_loaded_is_refused(own: Find, tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("nothing")
    with pytest.raises(CertificateError, match=r"ca\.pem: cannot be loaded"):
        certificate_reload.Tls(own, str(broken))


async def test_a_client_ca_that_is_added_is_trusted_without_a_restart(
    own: Find, clients: ClientAuthority, strangers: ClientAuthority, tmp_path: Path
) -> None:
    client = strangers.issue((NameOID.COMMON_NAME, "new"))
    secured = certificate_reload.Tls(own, clients.file)
    async with serving_at(answer_scope, secured) as address:
        replace(clients.file, content(clients.file) + content(strangers.file))
        assert secured.refresh()
        _, body = await get(f"https://{address}/", visitor(tmp_path, client))
    assert body["extensions"]["tls"]["client_cert_name"] == "CN=new"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_of_a_removed_ca_does_not_resume_its_session(
    own: Find,
    clients: ClientAuthority,
    strangers: ClientAuthority,
    tmp_path: Path,
    version: ssl.TLSVersion,
) -> None:
    kept = content(clients.file)
    replace(clients.file, kept + content(strangers.file))
    secured = certificate_reload.Tls(own, clients.file)
    context = visitor(tmp_path, strangers.issue((NameOID.COMMON_NAME, "old")))
    context.maximum_version = version
    async with serving_at(answer_scope, secured) as address:
        name, session, _ = await asyncio.to_thread(asked, address, context, None)
        assert name == "CN=old"
        name, session, resumed = await asyncio.to_thread(asked, address, context, session)
        assert (name, resumed) == ("CN=old", True), "a session is resumed while nothing changes"
        replace(clients.file, kept)
        assert secured.refresh()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(asked, address, context, session)


def asked(
    address: str, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[str | None, ssl.SSLSession | None, bool]:
    """Ask who one is; return that, a session to resume, and whether the given one was."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host, session=session) as secure,
    ):
        secure.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        answer = b""
        while part := secure.recv(65_536):
            answer += part
        if not answer:
            raise ConnectionError("the server ended the connection")
        resumed, later = bool(secure.session_reused), secure.session
    body = answer.partition(b"\r\n\r\n")[2]
    told = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])
    return told["extensions"]["tls"]["client_cert_name"], later, resumed


async def test_connections_of_a_removed_ca_end_and_those_of_others_do_not(
    own: Find,
    clients: ClientAuthority,
    strangers: ClientAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceptor, "TURN_SECONDS", 0.02)
    kept = content(clients.file)
    replace(clients.file, kept + content(strangers.file))
    secured = certificate_reload.Tls(own, clients.file)
    contexts = [
        visitor(tmp_path, authority.issue((NameOID.COMMON_NAME, "apiserver")))
        for authority in (clients, strangers)
    ]
    async with serving_at(answer_scope, secured) as address, contextlib.AsyncExitStack() as stack:
        host, _, port = address.rpartition(":")
        streams = []
        for context in contexts:
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            stack.callback(writer.transport.abort)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await reader.readuntil(b"0\r\n\r\n")
            streams.append((reader, writer))
        replace(clients.file, kept)
        assert secured.refresh()
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await streams[1][0].read() == b""
            reader, writer = streams[0]
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("removed", [False, True])
async def test_handshake_of_a_removed_ca_ends_without_a_connection(
    own: Find,
    clients: ClientAuthority,
    strangers: ClientAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    removed: bool,
) -> None:
    monkeypatch.setattr(acceptor, "TURN_SECONDS", 0.02)
    kept = content(clients.file)
    replace(clients.file, kept + content(strangers.file))
    secured = certificate_reload.Tls(own, clients.file)
    authority = strangers if removed else clients
    context = visitor(tmp_path, authority.issue((NameOID.COMMON_NAME, "apiserver")))
    accepted: list[Acceptor] = []
    async with serving_at(answer_scope, secured, watched=accepted.append) as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as plain:
            plain.setblocking(False)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not accepted[0].count(HANDSHAKES):  # noqa: ASYNC110 (there is no signal)
                    await asyncio.sleep(0.01)
            replace(clients.file, kept)
            assert secured.refresh()
            await asyncio.sleep(0.1)
            answer = b""
            async with asyncio.timeout(DEADLINE_SECONDS):
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    reader, writer = await asyncio.open_connection(
                        sock=plain, ssl=context, server_hostname=host
                    )
                    writer.write(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                    answer = await reader.read()
                    writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 200") is not removed

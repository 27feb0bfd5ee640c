"""Credentials are replaced while the service works, and no review is refused because of it."""

import asyncio
import gc
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import nkeys  # type: ignore[import-untyped]
import pytest
from nats.aio.msg import Msg
from support.servers.nats_servers import NatsServer
from support.servers.service_process import ServiceProcess, creation, running_service

from ledger.log.jetstream import nats_connection as connections
from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.nats_credentials import CredentialsError, check_keys
from ledger.log.log_port import Unreachable
from ledger.runtime.tls import server_certificate

pytestmark = pytest.mark.integration

WAIT_SECONDS = 60.0
CLIENTS = 4
USERS = {"old": "old:one", "new": "new:two", "newer": "newer:three"}


class Guarded(NatsServer):
    """A nats-server whose users change without a restart."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, extra='include "users.conf"')
        self.users("old")

    def users(self, *names: str) -> None:
        """Let in these users and no others; the running server reads them again."""
        logins = (USERS[name].split(":") for name in names)
        listed = ", ".join(f'{{ user: "{user}", password: "{word}" }}' for user, word in logins)
        (self.directory / "users.conf").write_text(f"authorization {{ users: [ {listed} ] }}\n")
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)

    async def connected(self) -> list[str]:
        """Return the users of all connections."""
        async with httpx2.AsyncClient() as client:
            answer = await client.get(f"{self.monitor_url}/connz?auth=1&limit=1024")
        return [
            connection.get("authorized_user", "") for connection in answer.json()["connections"]
        ]

    async def only(self, user: str) -> None:
        """Wait until all who are connected are this user."""
        async with asyncio.timeout(WAIT_SECONDS):
            while set(await self.connected()) != {user}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Guarded]:
    guarded = Guarded(tmp_path / "nats")
    await guarded.start()
    yield guarded
    guarded.stop()


def replaced(path: Path, text: str) -> None:
    """Replace a file at once."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_text(text)
    scratch.rename(path)


def content(path: str) -> str:
    return Path(path).read_text()


class Load:
    """Clients that create pods, one after the other, and count what is not allowed."""

    def __init__(self, service: ServiceProcess) -> None:
        self._service = service
        self.allowed, self.refused = 0, list[str]()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        async with self._service.client() as client, asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS):
                tasks.create_task(self._create(client, number))
            await self._ended.wait()

    async def _create(self, client: httpx2.AsyncClient, number: int) -> None:
        count = 0
        while not self._ended.is_set():
            count += 1
            review = creation(f"p-{number}-{count}")
            answer = await client.post("/admission/validate", json=review)
            response = answer.json()["response"]
            if response["allowed"]:
                self.allowed += 1
            else:
                self.refused.append(json.dumps(response))

    async def more(self, count: int = 20) -> None:
        """Wait until so many more were decided."""
        wanted = self.allowed + len(self.refused) + count
        async with asyncio.timeout(WAIT_SECONDS):
            while self.allowed + len(self.refused) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def end(self) -> None:
        self._ended.set()


@pytest.mark.timeout(240)
async def test_a_user_of_nats_is_replaced_under_load_and_nothing_is_refused(
    server: Guarded, tmp_path: Path
) -> None:
    login = tmp_path / "login"
    login.write_text(USERS["old"])
    options = (f"--nats={server.url}", f"--nats-login-file={login}")
    with running_service(
        tmp_path / "store", *options, f"--nats-monitor={server.monitor_url}"
    ) as service:
        load = Load(service)
        running = asyncio.create_task(load.run())
        await load.more()
        server.users("old", "new")
        await load.more()
        replaced(login, USERS["new"])
        await server.only("new")
        await load.more()
        server.users("new")
        await load.more(60)
        load.end()
        await running
        assert await server.connected(), "nothing is connected"
    assert load.refused == [], f"{len(load.refused)} of {load.allowed + len(load.refused)} refused"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)


@pytest.mark.usefixtures("quick")
async def test_a_subscription_moves_and_gets_each_message_once(
    server: Guarded, tmp_path: Path
) -> None:
    server.users("old", "new")
    login, heard = tmp_path / "login", list[bytes]()
    login.write_text(USERS["old"])
    connection = await NatsConnection.connect(Access((server.url,), login=str(login)), deadline=2)

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    await connection.subscribe("news", hear)
    replaced(login, USERS["new"])
    async with asyncio.timeout(WAIT_SECONDS):
        while "new" not in await server.connected():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    while len(heard) < 3:
        await connection.publish("news", b"one")
        await connection.api("INFO")
    assert len(heard) == 3
    await server.only("new")
    await connection.close()


@pytest.mark.usefixtures("quick")
async def test_the_ca_of_the_servers_is_replaced(tmp_path: Path) -> None:
    old, new = (
        server_certificate.ensure(tmp_path / name, (), server_certificate.utc_now())
        for name in ("old", "new")
    )
    served, trusted = tmp_path / "server.pem", tmp_path / "ca.crt"
    shutil.copy(old.certificate, served)
    shutil.copy(old.authority, trusted)
    tls = f'tls {{ cert_file: "{served}", key_file: "{served}" }}'
    server = NatsServer(tmp_path / "nats", extra=tls)
    await server.start()
    try:
        connection = await NatsConnection.connect(
            Access((server.url,), ca=str(trusted)), deadline=10
        )
        first = await connection.client()
        replaced(trusted, "".join(content(files.authority) for files in (old, new)))
        async with asyncio.timeout(WAIT_SECONDS):
            while await connection.client() is first:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        shutil.copy(new.certificate, served)
        server.kill()
        await server.start()
        await answered(connection)
        await connection.close()
    finally:
        server.stop()


async def answered(connection: NatsConnection) -> None:
    """Wait until JetStream answers."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await connection.api("INFO")
                return
            except Unreachable:
                await asyncio.sleep(0.05)


@pytest.mark.usefixtures("quick")
async def test_a_login_that_is_refused_changes_nothing_until_it_works(
    server: Guarded, tmp_path: Path
) -> None:
    login = tmp_path / "login"
    login.write_text(USERS["old"])
    connection = await NatsConnection.connect(Access((server.url,), login=str(login)), deadline=0.5)
    client = await connection.client()
    replaced(login, USERS["new"])
    await asyncio.sleep(1)
    assert await connection.client() is client
    await connection.api("INFO")
    server.users("old", "new")
    await server.only("new")
    await connection.api("INFO")
    await connection.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_a_user_that_is_removed_first_is_followed_by_the_one_in_the_file(
    server: Guarded, tmp_path: Path
) -> None:
    login = tmp_path / "login"
    login.write_text(USERS["old"])
    connection = await NatsConnection.connect(Access((server.url,), login=str(login)), deadline=5)
    server.users("new")
    replaced(login, USERS["new"])
    await server.only("new")
    await answered(connection)
    await connection.close()
    # The library leaves sockets of refused attempts to the collector; it runs within this test.
    gc.collect()


def made_seed() -> str:
    """Return the seed of a new user of NATS."""
    return nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()


@pytest.mark.parametrize("broken", ["", "not a seed\n", "SU\n"])
async def test_a_seed_that_is_half_written_changes_nothing_until_it_is_whole(
    server: Guarded, quick: None, broken: str, tmp_path: Path
) -> None:
    (server.directory / "users.conf").write_text("")
    server.stop()
    await server.start()
    seed = tmp_path / "seed"
    seed.write_text(made_seed())
    connection = await NatsConnection.connect(
        Access((server.url,), nkey_seed=str(seed)), deadline=5
    )
    client = await connection.client()
    replaced(seed, broken)
    await asyncio.sleep(1)
    assert await connection.client() is client
    replaced(seed, made_seed() + "\n")
    async with asyncio.timeout(WAIT_SECONDS):
        while await connection.client() is client:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await connection.close()


def creds(token: str, seed: str) -> str:
    return f"-----BEGIN {token}-----\nx\n------END\n\n-----BEGIN {seed}-----\n{made_seed()}\n---\n"


def test_credentials_that_are_half_written_are_not_given_to_the_library(tmp_path: Path) -> None:
    """It would look for a token for ever and hold the event loop."""
    token, seed = "NATS USER JWT", "USER NKEY SEED"
    whole = creds(token, seed)
    file = tmp_path / "creds"
    file.write_text(whole)
    check_keys(Access((), credentials=str(file)))
    halves = ("", whole[: whole.index(seed)], creds("x", seed), creds(token, "x"))
    for text in halves:
        file.write_text(text)
        with pytest.raises(CredentialsError, match=str(file)):
            check_keys(Access((), credentials=str(file)))
    file.unlink()
    with pytest.raises(CredentialsError, match="cannot be read"):
        check_keys(Access((), credentials=str(file)))

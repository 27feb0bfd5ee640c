"""A connection outlives its client: what is asked of it meanwhile is done once, on the next one."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg
from support.servers.nats_servers import NatsServer
from support.servers.ports import free_port
from support.servers.tcp_proxy import TcpProxy, tcp_proxy

from ledger.log.jetstream import nats_connection
from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.log_port import Unreachable

pytestmark = pytest.mark.integration

DEADLINE_SECONDS = 20.0
TURNS = 50
"""Turns of the loop that are enough for everything that does not wait for the network."""


@pytest.fixture
async def way(nats_server: NatsServer) -> AsyncIterator[TcpProxy]:
    """Return a link to the server."""
    async with tcp_proxy(nats_server.port, free_port()) as proxy:
        yield proxy


async def connected(way: TcpProxy, deadline: float = DEADLINE_SECONDS) -> NatsConnection:
    access = Access((f"nats://127.0.0.1:{way.port}",))
    return await NatsConnection.connect(access, deadline=deadline)


async def reviving(connection: NatsConnection, way: TcpProxy) -> "asyncio.Task[bytes]":
    """Let the client close itself, and have a caller wait for the next one over a dead link."""
    await (await connection.client()).close()
    await way.stall()
    asking = asyncio.create_task(connection.api("INFO"))
    await some_turns()
    return asking


async def some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_a_subscriber_gets_each_message_once_while_the_client_is_replaced(
    way: TcpProxy, shard: str
) -> None:
    connection = await connected(way)
    asking = await reviving(connection, way)
    heard: list[bytes] = []
    ended = asyncio.Event()

    async def hear(message: Msg) -> None:
        heard.append(message.data)
        if message.data == b"end":
            ended.set()

    subscribing = asyncio.create_task(connection.subscribe(f"{shard}.news", hear))
    await some_turns()
    await way.restore()
    await asyncio.gather(asking, subscribing)
    for text in (b"one", b"end"):
        await connection.publish(f"{shard}.news", text)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await ended.wait()
    await connection.api("INFO")  # and so a message that came twice has arrived, too
    assert heard == [b"one", b"end"]
    await connection.close()


async def test_what_is_asked_while_the_client_is_replaced_waits_for_the_next_one(
    way: TcpProxy,
) -> None:
    connection = await connected(way)
    asking = await reviving(connection, way)
    other = asyncio.create_task(connection.api("INFO"))
    await some_turns()
    assert not other.done()
    await way.restore()
    await asyncio.gather(asking, other)
    await connection.close()


async def test_a_request_ends_with_the_connection_that_it_was_sent_on(way: TcpProxy) -> None:
    connection = await connected(way)
    await way.stall()
    waiting = [
        asyncio.create_task(connection.request("$JS.API.INFO", b"")),
        asyncio.create_task(connection.api("INFO")),
    ]
    await some_turns()
    assert not any(task.done() for task in waiting)
    await way.cut()
    async with asyncio.timeout(DEADLINE_SECONDS / 2):
        first, second = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(first, TimeoutError)
    assert isinstance(second, Unreachable)
    await way.restore()
    await answers_again(connection)
    await connection.close()


async def answers_again(connection: NatsConnection) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await connection.api("INFO")
            except Unreachable:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_question_is_asked_again_while_none_answers_and_a_change_is_not(
    nats_server: NatsServer, shard: str
) -> None:
    """The server of a domain answers the second call, as a leader does after its election."""
    servers = Access((nats_server.url,))
    asking = await NatsConnection.connect(servers, deadline=DEADLINE_SECONDS, domain=shard)
    leader = await NatsConnection.connect(servers, deadline=DEADLINE_SECONDS)
    asked: list[str] = []

    async def answer_the_second(message: Msg) -> None:
        asked.append(message.subject)
        if asked.count(message.subject) == 2:
            await message.respond(b"{}")

    await leader.subscribe(f"$JS.{shard}.API.>", answer_the_second)
    await leader.api("INFO")  # and so the server has the subscription
    async with asyncio.timeout(DEADLINE_SECONDS / 2):
        assert await asking.api("STREAM.INFO.a", again=True) == b"{}"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * nats_connection.ASK_AGAIN_SECONDS):
            await asking.api("STREAM.PURGE.a")
    assert len(asked) == 3
    for connection in (asking, leader):
        await connection.close()


async def test_waiting_calls_end_by_their_deadline_when_no_client_connects(
    way: TcpProxy,
) -> None:
    connection = await connected(way, deadline=1.0)
    asking = [await reviving(connection, way)]
    asking += [asyncio.create_task(connection.api("INFO")) for _ in range(30)]
    async with asyncio.timeout(DEADLINE_SECONDS):
        errors = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(error, Unreachable) for error in errors)
    await connection.close()


async def test_a_client_that_comes_after_the_connection_was_closed_is_closed_too(
    way: TcpProxy,
) -> None:
    connection = await connected(way)
    asking = await reviving(connection, way)
    await connection.close()
    await way.restore()
    with pytest.raises(Unreachable, match="closed by this process"):
        await asking


async def test_a_server_that_never_answers_is_not_taken_for_one_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(Unreachable, match=f"{address}.*does not speak NATS"):
                await NatsConnection.connect(Access((f"nats://{address}",)), deadline=1.0)


@pytest.mark.parametrize("greeting", [b"SSH-2.0-x\r\n", b"INFO\r\n", b"x" * 100_000])
async def test_a_server_of_another_protocol_is_named(greeting: bytes) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(Unreachable, match=f"{address}.*does not speak NATS"):
            await NatsConnection.connect(Access((f"nats://{address}",)), deadline=1.0)


@pytest.mark.parametrize("scheme", ["nats", "tls"])
async def test_a_server_that_hangs_up_at_the_deadline_does_not_prolong_it(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hasty:
        hasty.setblocking(False)

        async def hang_up() -> None:
            accepted, _ = await asyncio.get_running_loop().sock_accept(hasty)
            await asyncio.sleep(0.2)  # the client waits for the greeting by now
            accepted.close()
            time.sleep(1.5)  # noqa: ASYNC251 - its end and the deadline are seen at once

        hanging = asyncio.create_task(hang_up())
        access = Access((f"{scheme}://127.0.0.1:{hasty.getsockname()[1]}",))
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(Unreachable, match="does not speak NATS"):
                await NatsConnection.connect(access, deadline=1.0)
        await hanging


async def test_silent_servers_are_passed_over_within_the_deadline(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_connection, "CONNECT_SECONDS", 0.2)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.socket()) for _ in range(9)]
        for server in silent:
            server.bind(("127.0.0.1", 0))
            server.listen()
        ports = [*(server.getsockname()[1] for server in silent), nats_server.port]
        access = Access(tuple(f"nats://127.0.0.1:{port}" for port in ports))
        connection = await NatsConnection.connect(access, deadline=DEADLINE_SECONDS)
        assert await connection.api("INFO")
        await connection.close()

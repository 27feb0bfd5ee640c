"""The kept pull consumer, on a server of this test that fails when a test wants it."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg
from simulation.engine.loop import VirtualLoop
from structlog.testing import capture_logs

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.missing_records import RETRY_SECONDS, Stream
from ledger.log.jetstream.readers import pull_consumer, push_consumer
from ledger.log.jetstream.readers.pull_consumer import AVOIDED_SECONDS, PullReader, follow
from ledger.log.log_port import Extent, LogEntry, Lost

STEPS_MAX = 200_000
DELIVERY_SECONDS = 0.002

Receive = Callable[[Msg], Awaitable[None]]


class PullServer:
    """A connection and the server behind it, with a stream that ends at `last`.

    `faults` are taken one for each request: "" none, "silent" no answer, "gone" no such consumer,
    "skip" an entry is lost, "late" the last entry comes after the request, "reset" the connection
    is made again, "short" the request ends after one entry, "more" one entry more is delivered.
    """

    api_prefix = "$JS.API"
    closed = False

    def __init__(self, last: int, faults: list[str] | None = None) -> None:
        self.last, self.faults = last, faults or []
        self.extents = self.inboxes = self.made = self.requests = 0
        self._inboxes: dict[str, Receive] = {}
        self._next: dict[str, int] = {}
        self._delivered: dict[str, int] = {}
        self._watchers: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def client(self) -> Any:
        inboxes = self._inboxes

        async def subscribe(subject: str, cb: Receive, **_: int) -> Any:
            async def unsubscribe() -> None:
                del inboxes[subject]

            inboxes[subject] = cb
            return SimpleNamespace(unsubscribe=unsubscribe)

        self.inboxes += 1
        name = f"_INBOX.c{self.inboxes}"
        return SimpleNamespace(new_inbox=lambda: name, subscribe=subscribe)

    async def api(self, verb: str, body: Any) -> bytes:
        assert verb.startswith("CONSUMER.CREATE.S.c")
        self.made += 1
        self._next[body["config"]["name"]] = body["config"]["opt_start_seq"]
        return b""

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    async def publish(self, subject: str, payload: bytes, reply: str) -> None:
        request = msgspec.json.decode(payload)
        assert request["max_bytes"] == pull_consumer.BYTES_MAX
        self.requests += 1
        fault = self.faults.pop(0) if self.faults else ""
        answer = self._answer(subject.rsplit(".", 1)[-1], reply, request, fault)
        task = asyncio.get_running_loop().create_task(answer)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, name: str, inbox: str, request: Any, fault: str) -> None:
        await asyncio.sleep(DELIVERY_SECONDS)
        if fault == "gone":
            await self._send(inbox, "", "503")
        if fault == "reset":
            for callback in tuple(self._watchers):
                callback()
        if fault in ("silent", "gone", "reset"):
            return
        if fault == "skip":
            self._next[name] += 1
        until = asyncio.get_running_loop().time() + request["expires"] / 1e9
        batch = 1 if fault == "short" else request["batch"] + (fault == "more")
        sent = 0
        while sent < batch:
            if self._next[name] <= self.last:
                await self._deliver(name, inbox)
                sent += 1
            elif (sent and "no_wait" in request) or asyncio.get_running_loop().time() >= until:
                break
            else:
                await asyncio.sleep(DELIVERY_SECONDS)
        if sent < request["batch"]:
            await self._send(inbox, "", "404" if sent else "408")
        if fault == "late" and self._next[name] <= self.last:
            await self._deliver(name, inbox)

    async def _deliver(self, name: str, inbox: str) -> None:
        position = self._next[name]
        self._next[name] += 1
        delivered = self._delivered[name] = self._delivered.get(name, 0) + 1
        await self._send(inbox, f"$JS.ACK.S.{name}.1.{position}.{delivered}.1700000000.0", "")

    async def _send(self, inbox: str, reply: str, status: str) -> None:
        headers = {"Status": status} if status else {"Nats-Expected-Stream": "S"}
        if receive := self._inboxes.get(inbox):
            await receive(
                Msg(_client=Client(), subject="s", reply=reply, data=b"x", headers=headers)
            )


def entries(first: int, last: int) -> list[LogEntry]:
    return [LogEntry(position, b"x") for position in range(first, last + 1)]


def on(server: PullServer) -> Stream:
    return Stream(server, "S", contiguous=True)  # type: ignore[arg-type]


def virtually(run: Coroutine[Any, Any, Any]) -> Any:
    loop = VirtualLoop(random.Random(1), steps_max=STEPS_MAX)  # type: ignore[abstract]
    return loop.run(run)


def test_successive_reads_share_one_consumer() -> None:
    async def run() -> None:
        server = PullServer(20)
        reader = PullReader(on(server))
        assert await reader.read(1, 5) == entries(1, 5)
        assert await reader.read(6, 6) == entries(6, 6)
        assert await reader.next(7) == entries(7, 20)
        assert server.made == 1

    virtually(run())


@pytest.mark.parametrize(("first", "idle"), [(9, 0.0), (6, pull_consumer.USED_SECONDS)])
def test_a_read_elsewhere_or_after_a_pause_makes_a_consumer(first: int, idle: float) -> None:
    """The server removes a consumer that is not used."""

    async def run() -> None:
        server = PullServer(20)
        reader = PullReader(on(server))
        await reader.read(1, 5)
        await asyncio.sleep(idle)
        assert await reader.read(first, 20) == entries(first, 20)
        assert server.made == 2

    virtually(run())


@pytest.mark.parametrize("fault", ["gone", "skip", "reset"])
def test_a_read_without_entries_is_followed_by_a_new_consumer(fault: str) -> None:
    async def run() -> None:
        server = PullServer(20, [fault])
        reader = PullReader(on(server))
        assert await reader.read(1, 20) == []
        assert await reader.read(1, 20) == entries(1, 20)
        assert server.made == 2

    virtually(run())


def test_a_read_of_announced_entries_gives_a_consumer_behind_up() -> None:
    async def run() -> None:
        server = PullServer(0)
        reader = PullReader(on(server))
        assert await reader.read(1, 3) == []
        server.last = 3
        assert await reader.read(1, 3) == entries(1, 3)
        assert server.made == 2

    virtually(run())


def test_a_server_that_does_not_answer_is_avoided_for_a_time() -> None:
    async def run() -> None:
        server = PullServer(20, ["silent"])
        reader = PullReader(on(server))
        assert await reader.read(1, 20) == []
        assert await reader.read(1, 20) == []
        assert server.requests == 1
        await asyncio.sleep(AVOIDED_SECONDS)
        assert await reader.read(1, 20) == entries(1, 20)

    virtually(run())


def test_more_entries_than_wanted_are_not_returned() -> None:
    """A reader up to a position must not get later ones."""

    async def run() -> None:
        reader = PullReader(on(PullServer(20, ["more"])))
        assert await reader.read(1, 5) == entries(1, 5)
        assert await reader.read(6, 20) == entries(6, 20)

    virtually(run())


def test_a_second_read_at_the_same_time_gets_nothing() -> None:
    async def run() -> None:
        reader = PullReader(on(PullServer(20)))
        first, second = await asyncio.gather(reader.read(1, 20), reader.read(1, 5))
        assert (first, second) == (entries(1, 20), [])

    virtually(run())


def test_entries_of_a_cancelled_read_are_not_those_of_the_next() -> None:
    async def run() -> None:
        server = PullServer(20)
        reader = PullReader(on(server))
        reading = asyncio.ensure_future(reader.read(1, 20))
        await asyncio.sleep(DELIVERY_SECONDS / 2)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert await reader.read(1, 5) == entries(1, 5)
        await asyncio.sleep(10 * DELIVERY_SECONDS)
        assert await reader.read(6, 7) == entries(6, 7)

    virtually(run())


def test_an_idle_follower_keeps_its_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        server = PullServer(0)
        _real_reads(monkeypatch)
        following = asyncio.ensure_future(anext(follow(on(server), 1)))
        await asyncio.sleep(60)
        server.last = 1
        assert await following == entries(1, 1)
        assert server.made == 1

    virtually(run())


def test_an_idle_follower_without_its_consumer_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        server = PullServer(0, ["gone"])
        _real_reads(monkeypatch)
        following = asyncio.ensure_future(anext(follow(on(server), 1)))
        await asyncio.sleep(60)
        assert (server.made, server.requests) == (2, 21)
        following.cancel()

    virtually(run())


def test_a_follower_without_an_answer_reads_by_push(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of the log server may lack the right to pull."""

    async def run() -> None:
        server = PullServer(0, ["silent"] * 100)
        _real_reads(monkeypatch)
        batches = follow(on(server), 1)
        with capture_logs() as logged:
            for position in range(1, 10):
                server.last = position
                assert await anext(batches) == entries(position, position)
        assert server.requests == 1
        assert [line["event"] for line in logged] == ["pull_unanswered"]
        waiting = asyncio.ensure_future(anext(batches))
        asked = server.extents
        await asyncio.sleep(10)
        assert server.extents - asked <= 10 / RETRY_SECONDS
        waiting.cancel()

    virtually(run())


def test_a_follower_of_a_stream_that_shrank_raises_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        server = PullServer(4)
        _real_reads(monkeypatch)
        with pytest.raises(Lost, match="ends at 4, but position 6 was seen"):
            await anext(follow(on(server), 7))

    virtually(run())


FAULTS = st.sampled_from(["", "", "silent", "gone", "skip", "late", "reset", "short", "more"])


@given(st.lists(FAULTS, max_size=12), st.lists(st.integers(0, 600), min_size=1, max_size=8))
def test_a_follower_yields_each_entry_once_in_order(faults: list[str], stored: list[int]) -> None:
    """Entries are stored in bursts, and each request may fail in any way."""

    async def run() -> None:
        server = PullServer(0, faults)
        seen: list[int] = []

        async def take() -> None:
            async for batch in follow(on(server), 1):
                seen.extend(entry.position for entry in batch)
                await asyncio.sleep(0.05)

        taking = asyncio.ensure_future(take())
        for count in stored:
            await asyncio.sleep(0.03)
            server.last += count
        for _ in range(1_000):
            await asyncio.sleep(0.5)
            if len(seen) >= server.last:
                break
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        assert seen == list(range(1, server.last + 1))

    with pytest.MonkeyPatch.context() as patch:
        _real_reads(patch)
        virtually(run())


def _real_reads(patch: pytest.MonkeyPatch) -> None:
    """Let the extent be that of the test's server, and all entries those of the push consumer."""

    async def extent(connection: PullServer, _: str) -> Extent:
        connection.extents += 1
        await asyncio.sleep(DELIVERY_SECONDS)
        return Extent(1, connection.last, 0, 0)

    async def read(stream: Stream, first: int, last: int) -> Any:
        yield entries(first, last)

    patch.setattr(jetstream_api, "extent", extent)
    patch.setattr(push_consumer, "read", read)

"""The log follower starts empty, from a file or a snapshot, and keeps its state without a log."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.builders.decide_and_fold import record

from ledger.core import snapshot_format
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Parts, Phase, Share
from ledger.core.model.state import State
from ledger.log.log_port import Extent, Snapshot, Unreachable
from ledger.log.memory_log import MemoryLog, MemoryStore
from vgpu_native.agent import log_follower
from vgpu_native.agent.log_follower import LogFollower
from vgpu_native.agent.node_placements import NodeImage, NodePlacements

NODE, POD, UID = "c1/n0", "pods/p", "uid-p"
SPACE = "c1/team"
SECONDS = 5.0


class Ledger:
    """A store and its writer."""

    def __init__(self) -> None:
        self.state, self.store = State(), MemoryStore(exists=True)
        self.do(commands.RegisterCards(NODE, OWN, (Card("GPU-a", 0, "H200", 1000, 100, 10),)))

    def do(self, *those: commands.AnyCommand) -> None:
        for command in those:
            payload = record(self.state, [command], time=self.state.position)
            assert payload is not None, f"{command} is denied"
            self.store.store(payload, self.state.position - 1)

    def place(self, memory: int = 100, name: str = "p") -> None:
        where = (SPACE, f"pods/{name}", f"uid-{name}")
        self.do(commands.Reserve(*where, {"nvidia.com/gpu": 1}))
        self.do(commands.Observe(*where, 1, {"nvidia.com/gpu": 1}))
        self.do(commands.Place(*where, NODE, parts(memory), {}))

    async def connect(self) -> MemoryLog:
        return MemoryLog(self.store)


def parts(memory: int) -> Parts:
    first = Part("prepare", Phase.INIT)
    return (first, Part("main", Phase.APP, (Share("GPU-a", memory, 30),)))


@contextlib.asynccontextmanager
async def running(follower: LogFollower) -> AsyncIterator[LogFollower]:
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - the condition sends no event
            await asyncio.sleep(0.005)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


async def test_the_follower_returns_placements_and_their_changes(
    ledger: Ledger, tmp_path: Path
) -> None:
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: not follower.trouble)
        version = follower.version
        ledger.place()
        await asyncio.wait_for(follower.wait(version), SECONDS)
        [container] = follower.containers()
        assert (container.namespace, container.pod, container.uid, container.name) == (
            "team",
            "p",
            UID,
            "main",
        )
        assert (container.order, container.shares[0].memory, container.allocated) == (1, 100, False)
        ledger.do(commands.Resize(SPACE, POD, UID, parts(200), {}))
        await until(lambda: follower.containers()[0].shares[0].memory == 200)
        ledger.do(commands.Advance(SPACE, POD, UID, 2, True, {}))
        await until(lambda: follower.containers()[0].allocated)
        ledger.do(commands.End(SPACE, POD, UID, 2, "deleted"))
        await until(lambda: not follower.containers())


async def test_caught_up_returns_when_all_written_records_are_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        for number in range(3):
            ledger.place(1, f"p{number}")
            await asyncio.wait_for(follower.caught_up(), SECONDS)
            assert follower.position == ledger.state.position
            assert len(follower.containers()) == number + 1


async def test_caught_up_waits_when_the_log_is_lost(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = MemoryLog.extent

    async def away(self: MemoryLog) -> Extent:
        raise Unreachable("the log is away")

    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: not follower.trouble)
        monkeypatch.setattr(MemoryLog, "extent", away)
        asking = asyncio.create_task(follower.caught_up())
        # The follower reports the loss at once, and not at its next poll.
        await until(lambda: follower.trouble == "the log is away")
        assert not asking.done()
        monkeypatch.setattr(MemoryLog, "extent", original)
        await asyncio.wait_for(asking, SECONDS)
        assert not follower.trouble


async def test_the_version_is_unchanged_by_records_of_other_nodes(
    ledger: Ledger, tmp_path: Path
) -> None:
    async with running(
        LogFollower("c1/other", ledger.connect, file=tmp_path / "placements")
    ) as follower:
        await until(lambda: follower.is_current)
        version = follower.version
        ledger.place()
        await until(lambda: follower.position == ledger.state.position)
        assert follower.version == version


async def test_a_stored_image_is_not_current_until_the_log_is_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    ledger.place()
    file = tmp_path / "placements"
    async with running(LogFollower(NODE, ledger.connect, file=file)) as follower:
        await until(lambda: bool(follower.containers()))
    again = LogFollower(NODE, ledger.connect, file=file)
    assert again.containers()
    assert not again.is_current
    version = again.version
    async with running(again):
        await asyncio.wait_for(again.wait(version), SECONDS)
        assert again.is_current


async def test_a_restarted_follower_continues_at_its_position(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.place()
    file = tmp_path / "placements"
    async with running(LogFollower(NODE, ledger.connect, file=file)) as follower:
        await until(lambda: bool(follower.containers()))
    read: list[int] = []
    original = MemoryLog.follow

    def counted(self: MemoryLog, first: int) -> object:
        read.append(first)
        return original(self, first)

    monkeypatch.setattr(MemoryLog, "follow", counted)
    again = LogFollower(NODE, ledger.connect, file=file)
    assert again.containers() == follower.containers()
    async with running(again):
        await until(lambda: not again.trouble)
    assert read == [ledger.state.position + 1]


async def test_the_stored_image_is_taken_between_two_records(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: set[int] = set()
    original = NodePlacements.image

    def seen(self: NodePlacements) -> NodeImage:
        taken.add(threading.get_ident())
        return original(self)

    monkeypatch.setattr(NodePlacements, "image", seen)
    monkeypatch.setattr(log_follower, "KEEP_SECONDS", 0.01)
    ledger.place()
    file = tmp_path / "placements"
    async with running(LogFollower(NODE, ledger.connect, file=file)):
        await until(file.exists)
    assert taken == {threading.get_ident()}


async def test_a_follower_starts_from_a_snapshot(ledger: Ledger, tmp_path: Path) -> None:
    ledger.place()
    log = await ledger.connect()
    await log.save_snapshot(Snapshot(ledger.state.position, snapshot_format.encode(ledger.state)))
    ledger.store.records[0] = b"must not be read"
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: not follower.trouble)
        assert len(follower.containers()) == 1


async def test_a_follower_passes_a_damaged_snapshot_over(ledger: Ledger, tmp_path: Path) -> None:
    ledger.place()
    log = await ledger.connect()
    whole = snapshot_format.encode(ledger.state)
    await log.save_snapshot(Snapshot(ledger.state.position, whole))
    ledger.store.records[0] = b"must not be read"
    ledger.place(200, "q")
    await log.save_snapshot(Snapshot(ledger.state.position, whole[:-1]))
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: len(follower.containers()) == 2)
        assert not follower.trouble


async def test_a_snapshot_of_another_log_is_not_taken(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger()
    other.place(300)
    ledger.place()
    log = await ledger.connect()
    await log.save_snapshot(Snapshot(other.state.position, snapshot_format.encode(other.state)))
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: "this is not the same log" in follower.trouble)
        assert not follower.containers()


async def test_another_log_is_not_followed(ledger: Ledger, tmp_path: Path) -> None:
    ledger.place()
    file = tmp_path / "placements"
    async with running(LogFollower(NODE, ledger.connect, file=file)) as follower:
        await until(lambda: bool(follower.containers()))
    other = Ledger()
    other.place(300)
    other.place(200, "q")
    for changed in (other.store.records, ledger.store.records[:-1]):
        ledger.store.records = changed
        async with running(LogFollower(NODE, ledger.connect, file=file)) as again:
            await until(lambda: "has seen" in again.trouble)
            [container] = again.containers()
            assert container.shares[0].memory == 100


async def test_the_follower_reconnects_when_the_log_returns(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "RETRY_SECONDS", 0.01)
    away = True

    async def connect() -> MemoryLog:
        if away:
            raise Unreachable("no server is there")
        return MemoryLog(ledger.store)

    async with running(LogFollower(NODE, connect, file=tmp_path / "placements")) as follower:
        await until(lambda: follower.trouble == "no server is there")
        ledger.place()
        away = False
        await until(lambda: bool(follower.containers()))
        assert not follower.trouble


async def test_a_log_that_becomes_silent_is_reported(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "ASK_SECONDS", 0.01)
    silent = False
    original = MemoryLog.extent

    async def extent(self: MemoryLog) -> Extent:
        if silent:
            raise Unreachable("nobody there")
        return await original(self)

    monkeypatch.setattr(MemoryLog, "extent", extent)
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        for _ in range(2):
            await until(lambda: not follower.trouble)
            silent = True
            await until(lambda: follower.trouble == "nobody there")
            silent = False
        await until(lambda: not follower.trouble)


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"{}"])
async def test_the_log_is_read_from_the_start_when_the_file_is_unreadable(
    ledger: Ledger, tmp_path: Path, content: bytes
) -> None:
    ledger.place()
    (tmp_path / "placements").write_bytes(content)
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: bool(follower.containers()))


async def test_a_stored_image_of_another_node_is_ignored(ledger: Ledger, tmp_path: Path) -> None:
    ledger.place()
    async with running(LogFollower(NODE, ledger.connect, file=tmp_path / "placements")) as follower:
        await until(lambda: bool(follower.containers()))
    assert not LogFollower("c1/other", ledger.connect, file=tmp_path / "placements").containers()

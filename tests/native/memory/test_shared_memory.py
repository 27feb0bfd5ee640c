"""Memory that processes of a container share is charged once, until its last holder has gone."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.memory_user import MIB, OUT_OF_MEMORY, Shell, environment

from vgpu_native.shared import usage_region

Program = Callable[[str], Path]
Start = Callable[..., Shell]

BLOCKS = {"VGPU_STUB_ALLOC_LARGE_STEP": "2m", "VGPU_STUB_ALLOC_BLOCK": "2m"}
PLAIN = {"VGPU_STUB_PLAIN_HANDLES": "1", **BLOCKS}


@pytest.fixture
def start(native: Path, program: Program, tmp_path: Path) -> Start:
    """Return a function that starts a process of one container, under 100 MiB."""

    def started(**settings: str) -> Shell:
        return Shell(environment(native, tmp_path, "100m", **settings), program("memory_shell"))

    return started


def shared(process: Shell) -> str:
    """Export the last allocation of a process; return the command that opens it."""
    return "open " + " ".join(map(str, process.ask("export")))


def sent(process: Shell, amount: int) -> str:
    """Export new memory of a process as a file; return the command that imports it."""
    pid, file = process.ask(f"send {amount}")
    return f"receive {pid} {file}"


def free(process: Shell) -> int:
    """Return the free MiB, after comparing them with the memory in use."""
    rest, total = process.info()
    assert total - rest >= process.used(), "less is charged than is in use"
    return rest // MIB


def test_memory_stays_charged_when_its_maker_frees_it_while_it_is_open(start: Start) -> None:
    with start() as maker, start() as other:
        assert maker.take(60 * MIB) == 0
        assert other.ask(shared(maker)) == [0]
        assert (free(maker), free(other)) == (40, 40), "shared memory is charged once"
        assert maker.give() == 0
        assert maker.take(60 * MIB) == OUT_OF_MEMORY
        assert (free(maker), free(other)) == (40, 40)
        assert other.ask("close") == [0]
        assert (free(maker), free(other)) == (100, 100)
        assert maker.take(100 * MIB) == 0


def test_memory_stays_charged_when_its_maker_dies_while_it_is_open(start: Start) -> None:
    with start() as maker, start() as other, start() as third:
        assert maker.take(60 * MIB) == 0
        assert other.ask(shared(maker)) == [0]
        maker.kill()
        assert third.take(60 * MIB) == OUT_OF_MEMORY
        assert free(third) == 40
        other.kill()
        assert third.take(100 * MIB) == 0


def test_memory_is_free_when_its_importer_died_first(start: Start) -> None:
    with start() as maker, start() as other:
        assert maker.take(60 * MIB) == 0
        assert other.ask(shared(maker)) == [0]
        other.kill()
        assert free(maker) == 40
        assert maker.give() == 0
        assert maker.take(100 * MIB) == 0


def test_memory_opened_twice_and_by_two_is_charged_until_the_last_close(start: Start) -> None:
    with start() as maker, start() as other, start() as third:
        assert maker.take(60 * MIB) == 0
        opens = shared(maker)
        assert [process.ask(opens) for process in (other, other, third)] == [[0]] * 3
        assert maker.give() == 0
        for process in (other, third, other):
            assert free(maker) == 40
            assert process.ask("close") == [0]
        assert free(maker) == 100


def test_a_handle_that_the_driver_refuses_is_not_held(start: Start) -> None:
    with start() as maker, start() as other:
        assert maker.take(60 * MIB) == 0
        opens = shared(maker)
        assert maker.give() == 0
        assert other.ask(opens) != [0]
        assert free(other) == 100
        assert maker.take(60 * MIB) == 0
        assert other.ask(shared(maker)) == [0]
        assert free(other) == 40


def test_a_handle_that_the_driver_refuses_holds_no_unidentified_memory(start: Start) -> None:
    with start(**PLAIN) as maker, start(**PLAIN) as other:
        sent(maker, 20 * MIB)
        ended = sent(maker, 40 * MIB)
        assert maker.ask("release") == [0]
        assert other.ask(ended) != [0]
        assert maker.ask("release") == [0]
        assert free(other) == 100


def test_opened_memory_is_free_when_the_context_of_its_importer_ended(start: Start) -> None:
    with start() as maker, start() as other:
        assert maker.take(60 * MIB) == 0
        assert other.ask(shared(maker)) == [0]
        assert maker.give() == 0
        assert free(maker) == 40
        assert other.ask("reset") == [0]
        assert free(maker) == 100


def test_a_block_of_small_allocations_is_shared_as_a_whole(start: Start) -> None:
    with start(**BLOCKS) as maker, start(**BLOCKS) as other:
        assert maker.take(4096) == 0
        assert maker.take(4096) == 0
        assert other.ask(shared(maker)) == [0]
        assert (maker.give(), maker.give()) == (0, 0)
        assert free(maker) == 98
        assert other.ask("close") == [0]
        assert free(maker) == 100


@pytest.mark.parametrize("settings", [{}, PLAIN], ids=["by file", "unidentified"])
@pytest.mark.parametrize("dies", [False, True])
def test_an_exported_handle_is_charged_while_an_importer_has_it(
    dies: bool, settings: dict[str, str], start: Start
) -> None:
    with start(**settings) as maker, start(**settings) as other, start(**settings) as third:
        assert other.ask(sent(maker, 60 * MIB)) == [0]
        assert (free(maker), free(other)) == (40, 40), "shared memory is charged once"
        if dies:
            maker.kill()
        else:
            assert maker.ask("release") == [0]
        assert free(third) == 40
        assert third.take(60 * MIB) == OUT_OF_MEMORY
        assert other.ask("release") == [0]
        assert free(third) == 100


@pytest.mark.parametrize("settings", [{}, PLAIN], ids=["by file", "unidentified"])
def test_a_handle_that_an_importer_passes_on_is_charged_until_released(
    settings: dict[str, str], start: Start
) -> None:
    with start(**settings) as maker, start(**settings) as other, start(**settings) as third:
        assert other.ask(sent(maker, 60 * MIB)) == [0]
        pid, file = other.ask("pass")
        assert third.ask(f"receive {pid} {file}") == [0]
        for process in (maker, other, third):
            assert free(maker) == 40
            assert process.ask("release") == [0]
        assert free(maker) == 100


def test_an_unidentified_import_holds_no_memory_exported_later(start: Start) -> None:
    with start(**PLAIN) as maker, start(**PLAIN) as other:
        assert other.ask(sent(maker, 20 * MIB)) == [0]
        sent(maker, 40 * MIB)
        assert maker.ask("release") == [0]
        assert free(other) == 80


def test_the_agent_counts_shared_memory_once(start: Start, tmp_path: Path) -> None:
    with start() as maker, start() as other:
        assert maker.take(60 * MIB) == 0
        opens = shared(maker)
        assert (other.ask(opens), other.ask(opens)) == ([0], [0])
        assert maker.take(10 * MIB) == 0
        assert usage_region.read(tmp_path / "region").devices[0].memory == 70 * MIB
        maker.kill()
        assert usage_region.read(tmp_path / "region").devices[0].memory == 60 * MIB
        other.kill()
        assert usage_region.read(tmp_path / "region").devices[0].memory == 0


class Crowd:
    """Processes that share memory in a random order, and what each of them holds."""

    def __init__(self, seed: int, start: Callable[[], Shell]) -> None:
        """Start four processes."""
        self._chance, self._start = random.Random(seed), start
        self.processes = [start() for _ in range(4)]
        self.held: list[list[str]] = [[] for _ in self.processes]
        self._exported: list[str] = []

    def step(self) -> None:
        """Let one process do one thing, and compare what is charged with what is in use."""
        at = self._chance.randrange(len(self.processes))
        moves = (self._take, self._take, self._export, self._import, self._import, self._give)
        self._chance.choice((*moves, self._give, self._send))(at)
        if not self._chance.randrange(30):
            self.processes[at].kill()
            self.processes[at], self.held[at] = self._start(), []
        free(self.processes[at])

    def _take(self, at: int) -> None:
        if self.processes[at].take(self._chance.choice([1000, 3 * MIB, 11 * MIB])) == 0:
            self.held[at].append("give")

    def _export(self, at: int) -> None:
        if "give" in self.held[at]:
            self._exported.append(shared(self.processes[at]))

    def _import(self, at: int) -> None:
        command = self._chance.choice(self._exported[-8:] or [""])
        gone = command.startswith("receive") and not Path(f"/proc/{command.split()[1]}").exists()
        if command and not gone and self.processes[at].ask(command) == [0]:
            self.held[at].append("close" if command.startswith("open") else "release")

    def _give(self, at: int) -> None:
        """Free what was taken, opened or imported last, of one kind."""
        if self.held[at]:
            command = self._chance.choice(self.held[at])
            assert self.processes[at].ask(command) == [0]
            self.held[at].remove(command)

    def _send(self, at: int) -> None:
        if free(self.processes[at]) > 8:
            self._exported.append(sent(self.processes[at], 6 * MIB))
            self.held[at].append("release")


@pytest.mark.parametrize("settings", [BLOCKS, PLAIN], ids=["blocks", "unidentified"])
@pytest.mark.parametrize("seed", range(2))
def test_no_order_of_shares_and_kills_is_charged_less(
    seed: int, settings: dict[str, str], start: Start
) -> None:
    crowd = Crowd(seed, lambda: start(**settings))
    for _ in range(200):
        crowd.step()
    for process in crowd.processes[1:]:
        process.kill()
    with crowd.processes[0] as last:
        for command in crowd.held[0]:
            assert last.ask(command) == [0]
        assert last.info() == (100 * MIB, 100 * MIB)

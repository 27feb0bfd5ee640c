"""Attaching: an error that passes refuses memory until a later call, and not for ever."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.core_programs import MIB, UUID, Ledger

from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, encode

PASSING = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN]
RETRIED = ("reserve", "1m", "await", "reserve", "600m", "reserve", "600m", "used")
ANSWERS = [0, 1, 0, 600 * MIB]
"""Refused at first, and after a nap as by a process that attached at once."""

FINAL_TRIES = 20


@pytest.fixture
def ledger(tmp_path: Path, core_program: Callable[[str], Path]) -> Ledger:
    return Ledger(tmp_path, core_program, {"CUDA_DEVICE_MEMORY_LIMIT": "1000m"})


@pytest.fixture
def page(ledger: Ledger) -> Path:
    """Return the path of a limits page that the ledger's processes read."""
    path = ledger.directory / "limits"
    path.write_bytes(encode(ContainerLimits((DeviceLimits(UUID.format(0), 1000 * MIB),))))
    ledger.environment["GPULEDGER_LIMITS_FILE"] = str(path)
    return path


def failing(
    ledger: Ledger, call: str, ending: str, error: int, *words: str, times: int = 3
) -> tuple[list[int], str]:
    """Return the answers and the log of a process whose first calls fail."""
    done = ledger.run("failing", call, ending, error, times, *words)
    return [int(line) for line in done.stdout.split()], done.stderr


@pytest.mark.parametrize("error", [*PASSING, errno.EINTR])
def test_a_page_is_opened_again_when_the_error_passes(
    ledger: Ledger, page: Path, error: int
) -> None:
    answers, said = failing(ledger, "open", page.name, error, *RETRIED)
    assert answers == ANSWERS
    assert said.count("\n") == 1
    assert f"{page} cannot be opened: {os.strerror(error)}; no memory is given" in said
    assert said.rstrip().rpartition(". ")[2] != "", "the remedy"


@pytest.mark.parametrize("error", PASSING)
def test_a_region_is_opened_again_when_the_error_passes(ledger: Ledger, error: int) -> None:
    answers, said = failing(ledger, "open", "region", error, *RETRIED)
    assert answers == ANSWERS
    assert said.count("\n") == 1
    assert f"{ledger.region} cannot be used as region: {os.strerror(error)}" in said


def test_a_region_is_mapped_again_when_memory_was_short(ledger: Ledger, page: Path) -> None:
    for _ in range(2):
        answers, said = failing(ledger, "mmap", "", errno.ENOMEM, *RETRIED)
        assert answers == ANSWERS
        assert said.count("\n") == 1
        page.unlink(missing_ok=True)
        ledger.environment.pop("GPULEDGER_LIMITS_FILE", None)


def test_a_slot_is_owned_later_when_no_thread_could_be_started(ledger: Ledger) -> None:
    answers, said = failing(ledger, "thread", "", errno.EAGAIN, *RETRIED)
    assert answers == ANSWERS
    assert said.count("\n") == 1
    assert "no thread to own a slot" in said


def test_a_region_of_this_boot_is_kept_when_the_boot_id_cannot_be_read(ledger: Ledger) -> None:
    ledger.ask("ready")
    before = ledger.region.stat().st_ino
    with ledger.talking("reserve", "600m", "wait") as other:
        assert other.answers(1) == [1]
        words = ("await", "used", "reserve", "600m")
        answers, _ = failing(ledger, "open", "boot_id", errno.EMFILE, *words)
        assert answers == [600 * MIB, 0]
    assert ledger.region.stat().st_ino == before


def test_a_process_is_limited_by_itself_when_the_error_does_not_pass(ledger: Ledger) -> None:
    words = ["nap", "20"] * FINAL_TRIES
    tries = [word for i in range(FINAL_TRIES) for word in ("ready", *words[2 * i : 2 * i + 2])]
    ends = ("device", "0", "reserve", "600m", "reserve", "600m")
    answers, said = failing(ledger, "thread", "", errno.EAGAIN, *tries, *ends, times=1000)
    assert answers == [1] * FINAL_TRIES + [1, 0]
    assert said.count("\n") == 2
    assert "this process is limited by itself" in said


def test_a_process_without_a_page_needs_no_file_to_find_that(ledger: Ledger) -> None:
    answers, said = failing(ledger, "open", "gpuledger/limits", errno.EMFILE, "reserve", "600m")
    assert (answers, said) == ([1], "")


def test_a_child_of_a_fork_retries_for_itself(ledger: Ledger, page: Path) -> None:
    words = ("reserve", "1m", "fork", "await", "reserve", "600m")
    answers, said = failing(ledger, "open", page.name, errno.EMFILE, *words, times=2)
    assert answers == [0, 1]
    assert "cannot be opened" in said


def test_a_process_out_of_files_gets_memory_once_it_may_open_more(
    ledger: Ledger, page: Path
) -> None:
    """The kernel's own error, by a limit of open files."""
    words = ("reserve", "1m", "files", "64", "await", "reserve", "600m")
    answers, said = failing(ledger, "files", "", 0, *words, times=3)
    assert answers == [0, 1]
    assert f"{page} cannot be opened: Too many open files" in said
    assert "ulimit -n" in said

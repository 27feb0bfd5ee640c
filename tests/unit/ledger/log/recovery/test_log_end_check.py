"""The head file: a witness that survives, and that raises an error when it is damaged."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from ledger.log.recovery.log_end_check import HeadFile, LogHead


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a directory that does not exist yet."""
    return tmp_path / "store" / "head.json"


async def test_the_noted_head_is_read_with_the_name_of_its_file(path: Path) -> None:
    file = HeadFile(path)
    assert file.read() is None
    await file.note(LogHead(7, "ab" * 32))
    await file.note(LogHead(9, "cd" * 32))
    assert HeadFile(path).read() == LogHead(9, "cd" * 32, str(path))
    assert [child.name for child in path.parent.iterdir()] == ["head.json"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"position": "x"}'])
def test_a_file_that_holds_no_head_is_not_the_same_as_none(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"head\.json is not a head file .*delete the file"):
        HeadFile(path).read()


async def test_a_write_waits_for_one_whose_caller_was_cancelled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, sync = HeadFile(path), os.fsync
    syncing, go_on = threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(10)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    noting = asyncio.create_task(file.note(LogHead(1, "ab")))
    assert await asyncio.to_thread(syncing.wait, 10)
    noting.cancel()
    last = asyncio.create_task(asyncio.to_thread(file.write, LogHead(2, "cd")))
    await asyncio.sleep(0.1)
    go_on.set()
    await asyncio.wait_for(last, 10)
    head = file.read()
    assert head is not None
    assert head.position == 2

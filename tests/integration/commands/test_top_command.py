"""`gpuledger top` on a terminal and in a pipe."""

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from support.harness.command_line import COMMAND, environment, gpuledger
from support.recorded.pseudo_terminal import on_terminal

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import commands
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

WAIT_SECONDS = 60.0
LIMIT = commands.SetLimits("quota/local/a/gpus", ("local/a",), {"requests.nvidia.com/gpu": 2})

LINE = ["quota", "local", "a", "-", "gpus", "requests.nvidia.com/gpu", "0", "2", "0.000"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with one quota."""
    path = tmp_path_factory.mktemp("ledger") / "store"

    async def write() -> None:
        settings = Settings(store_dir=str(path))
        async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
            assert isinstance(await writer.submit(LIMIT), Accepted)

    asyncio.run(write())
    return path


def test_a_pipe_gets_the_state_once(store: Path) -> None:
    shown = gpuledger("top", store=store)
    assert shown.status == 0
    assert shown.out.splitlines()[1].split() == ["a", "gpus", "gpu", "0", "2", "..........", "0%"]
    assert gpuledger("top", "-o", "json", store=store).json["quotas"][0]["limit"] == 2


def test_a_script_gets_one_table_once(store: Path) -> None:
    terminal = [["top", "-o", output, f"--store-dir={store}"] for output in ("wide", "csv", "name")]
    wide, csv, name = on_terminal(terminal, columns=200)
    assert wide[1].split() == LINE
    assert csv == [
        "kind,cluster,namespace,node,name,resource,used,limit,pressure",
        "quota,local,a,,gpus,requests.nvidia.com/gpu,0,2,0.000",
    ]
    assert name == ["gpus"]
    piped = gpuledger("top", "--once", "-o", "csv", "--no-headers", store=store)
    assert (piped.status, piped.out.splitlines()) == (0, csv[1:])
    assert "As of position 1 of 1." in piped.err


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_key_ends_it_and_the_terminal_is_as_before(store: Path, key: bytes) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [COMMAND, "top", "--every", "0.5", f"--store-dir={store}"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm"),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - for Ctrl-C
    ) as process:
        printed = _until(ours, b"PRESSURE")
        os.write(ours, key)
        assert process.wait(WAIT_SECONDS) == 0
        assert termios.tcgetattr(theirs) == before
        printed += os.read(ours, 65_536)
    os.close(ours)
    os.close(theirs)
    assert printed.count(b"\x1b[?1049h") == printed.count(b"\x1b[?1049l") == 1


def _until(terminal: int, text: bytes) -> bytes:
    """Return the output of a terminal up to a text."""
    printed, end = b"", time.monotonic() + WAIT_SECONDS
    while text not in printed:
        assert time.monotonic() < end, printed
        printed += os.read(terminal, 65_536)
    return printed

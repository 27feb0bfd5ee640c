"""Page process: `gpuledger page` on a store as a process, and the address that it prints."""

import contextlib
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.harness.command_line import COMMAND, environment

START_SECONDS: Final = 60.0
_ADDRESS: Final = re.compile(rb"http://127\.0\.0\.1:\d+")


class PageProcess:
    """A running command; `origin` is that of its pages, such as http://127.0.0.1:1."""

    def __init__(self, process: "subprocess.Popen[bytes]", origin: str) -> None:
        self.process = process
        self.origin = origin

    def computed(self) -> float:
        """Return the seconds that the process computed so far, without its children."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def page_process(store: Path, *options: str) -> Iterator[PageProcess]:
    """Serve the pages of a store for the block."""
    errors = store.parent / f"{store.name}-page.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [str(COMMAND), "page", f"--store-dir={store}", "--port=0", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
        )
    try:
        yield PageProcess(process, _address(process, errors))
    finally:
        process.terminate()
        assert process.stdout is not None
        process.stdout.close()
        process.wait(START_SECONDS)


def _address(process: "subprocess.Popen[bytes]", errors: Path) -> str:
    assert process.stdout is not None
    until, printed = time.monotonic() + START_SECONDS, b""
    while time.monotonic() < until and process.poll() is None:
        if select.select([process.stdout], [], [], 0.2)[0]:
            printed += os.read(process.stdout.fileno(), 4_096)
            if matched := _ADDRESS.search(printed):
                return matched[0].decode()
    raise AssertionError(f"no address in {printed!r}: {errors.read_text()}")

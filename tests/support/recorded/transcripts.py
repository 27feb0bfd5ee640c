"""Transcripts: pages whose ```console blocks are run, and must print the page's text.

A line that begins with `$ ` is a command, up to one that does not end with a backslash; the lines
after it are its output. All commands of a page are typed into one shell in an empty
directory that has the examples of docs/. Differences from run to run (times, ages, hashes, ids) and
the width of columns do not count.

    PYTHONPATH=tests python -m support.recorded.transcripts docs/tutorial.md

runs a page and writes what was printed into it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from support.servers.ports import free_port

DOCS = Path(__file__).parents[3] / "docs"
PORT = "8443"
"""The port that pages use; a free one takes its place."""

RUN_SECONDS = 300.0
END = "\x1e"

BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"(?m)^date: .*$"), "date: TIME"),
    (re.compile(r"(?m)(?:^| )\d+[smhd](?:\d+[smh])?(?= )"), " AGE"),
    (re.compile(r"\b[0-9a-f]{8}(-\d+)?\b(?!-[0-9a-f]{4})"), "ID"),
    (re.compile(r"\b[0-9a-f]{16,}\b"), "HASH"),
    (re.compile(r'"patch":"[^"]*"'), '"patch":"PATCH"'),
    (re.compile(r" +"), " "),
)


class Step(NamedTuple):
    """A command and what it prints."""

    command: str
    printed: str


def steps_of(text: str) -> list[Step]:
    """Return the steps of all blocks of a page."""
    return [step for block in BLOCK.findall(text) for step in _steps(block)]


def run(commands: Sequence[str], directory: Path) -> Iterator[Step]:
    """Type commands into a shell in a directory; yield each with what it printed."""
    shutil.copytree(DOCS / "examples", directory / "examples")
    port = str(free_port())
    script = "".join(
        f"{{ {command}\n}} 2>&1; printf '\\x1e'\n".replace(PORT, port) for command in commands
    )
    printed = _shell(script, directory).replace(port, PORT).split(END)
    if len(printed) != len(commands) + 1:
        raise AssertionError(f"the shell ended early:\n{END.join(printed)}")
    for command, text in zip(commands, printed, strict=False):
        yield Step(command, _tidy(text))


def same(text: str) -> str:
    """Return the significant part of an output."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


def fill(path: Path) -> None:
    """Run a page and write the output of its commands into it."""
    text = path.read_text()
    with tempfile.TemporaryDirectory() as directory:
        steps = run([step.command for step in steps_of(text)], Path(directory))

        def render(block: re.Match[str]) -> str:
            shown = [next(steps) for _ in _steps(block[0])]
            return "".join(f"$ {step.command}\n{step.printed}" for step in shown)

        path.write_text(BLOCK.sub(render, text))


def _steps(block: str) -> Iterator[Step]:
    for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = piece.splitlines()
        count = next(n for n, line in enumerate(lines, start=1) if not line.endswith("\\"))
        printed = "".join(f"{line}\n" for line in lines[count:])
        yield Step("\n".join(lines[:count]), _tidy(printed))


def _tidy(text: str) -> str:
    """Leave out what only this shell prints, and spaces at the end of lines."""
    lines = [line.rstrip() for line in text.splitlines() if " Killed " not in line]
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _shell(script: str, directory: Path) -> str:
    environment = {name: text for name, text in os.environ.items() if name[:9] != "GPULEDGER"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    shell = subprocess.Popen(
        ["bash"],
        cwd=directory,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        return shell.communicate(script, RUN_SECONDS)[0]
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()


if __name__ == "__main__":
    for page in sys.argv[1:]:
        fill(Path(page))

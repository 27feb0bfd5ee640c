"""Narration of the demo: outputs of commands, and prose that fits the terminal."""

import asyncio
import os
import re
import sys

import pytest

from gpuledger.demo.command_terminal import command_terminal
from gpuledger.demo.narration import FIRST, LAST, Narrator, excerpt

SCRIPT = "import shutil, sys; print(sys.stdout.isatty(), shutil.get_terminal_size().columns)"


def test_a_long_output_loses_its_middle_and_counts_it() -> None:
    lines = [str(number) for number in range(FIRST + LAST + 2)]
    shown = excerpt("\n".join(lines)).splitlines()
    assert shown == [*lines[:FIRST], "… 2 more lines", *lines[-LAST:]]
    for short in (lines[: FIRST + LAST + 1], lines[:3]):
        assert excerpt("\n".join(short)).splitlines() == short


async def test_a_command_gets_a_terminal_and_its_end_is_noticed() -> None:
    with command_terminal() as terminal:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SCRIPT,
            stdout=terminal.theirs,
            env=os.environ | {"COLUMNS": "76"},
        )
        async with asyncio.timeout(30):
            assert await terminal.read(30) == "True 76\n"
            assert await process.wait() == 0


async def test_a_terminal_that_stays_open_is_left_at_its_deadline() -> None:
    with command_terminal() as terminal:
        kept = os.dup(terminal.theirs)
        try:
            with pytest.raises(TimeoutError):
                await terminal.read(0.1)
        finally:
            os.close(kept)


SENTENCE = "one sentence of several words that is longer than the terminal of this test is wide"


@pytest.mark.parametrize("columns", ["", "40"])
def test_prose_is_wrapped_on_a_terminal_only(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("TERM", "xterm")
    narrator = Narrator()
    assert narrator.columns == (int(columns) - 4 if columns else 0)
    narrator.claim(SENTENCE)
    narrator.line(SENTENCE)
    narrator.block("x" * 50)
    lines = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    if not columns:
        assert lines == [f"    ok  {SENTENCE}", f"    {SENTENCE}", "    " + "x" * 50]
        return
    assert max(map(len, lines[:-1])) <= 40
    assert len(lines) > 5
    assert " ".join(" ".join(lines[:-1]).split()) == f"ok {SENTENCE} {SENTENCE}"

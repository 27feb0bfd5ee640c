"""The commands of the pages are valid; none is run here."""

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from gpuledger.command_line import build

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    }
)
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:[\w./-]*/)?gpuledger (.*)")
ENDS = re.compile(r"\s(?:\||&|>|2>|#)|\)")
"""Where a command ends within its line of shell."""

TARGET = re.compile(r"(?:^\s*(?:\$ )?|`)make ([a-z][a-z0-9-]*)", re.MULTILINE)


def shown(text: str) -> Iterator[list[str]]:
    """Return the arguments of every `gpuledger` that a page's blocks of shell call."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            begins = COMMAND.match(line)
            if begins and "[OPTIONS]" not in line:
                yield shlex.split(ENDS.split(begins[1])[0])


@functools.cache
def application() -> Any:
    """Return the command line, built once."""
    return get_command(build())


def parse(arguments: list[str]) -> None:
    """Parse a command. Raises Typer's errors, and KeyError for a command that is not there."""
    command = application()
    context = typer.Context(command, info_name="gpuledger")
    rest = list(arguments)
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    command.make_context("gpuledger", rest, parent=context)


def test_the_pages_show_commands() -> None:
    assert sum(len(list(shown(page.read_text()))) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_shows_is_understood(page: Path) -> None:
    wrong = []
    for arguments in shown(page.read_text()):
        try:
            parse(arguments)
        except (TyperException, KeyError) as error:
            wrong.append(f"gpuledger {shlex.join(arguments)}: {error!r}")
    assert wrong == []


@pytest.mark.parametrize(
    "arguments",
    [["usages"], ["usage", "--namespce", "a"], ["node", "topp"], ["resize", "-n", "a", "web"]],
    ids=" ".join,
)
def test_a_command_that_is_not_understood_is_found(arguments: list[str]) -> None:
    with pytest.raises((TyperException, KeyError)):
        parse(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_target_of_make_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(TARGET.findall(page.read_text())) - targets == set()

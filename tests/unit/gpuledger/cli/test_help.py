"""Every command has a description and examples."""

from collections.abc import Iterator
from typing import Final

import pytest
import typer
from typer.testing import CliRunner

from gpuledger.command_line import build
from ledger.runtime.settings.client_section import CLIENT
from ledger.runtime.settings.setting_texts import documentation

APP = build()


def _commands(
    group: typer.core.TyperGroup, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], typer.core.TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from _commands(command, (*path, name))
        elif isinstance(command, typer.core.TyperCommand):
            yield (*path, name), command


def _root() -> typer.core.TyperGroup:
    root = typer.main.get_command(APP)
    assert isinstance(root, typer.core.TyperGroup)
    return root


ALL = list(_commands(_root()))


def test_the_commands_are_those_that_are_documented_to_users() -> None:
    assert {" ".join(path) for path, _ in ALL} >= {
        "serve",
        "usage",
        "holders",
        "holds",
        "cards",
        "resize",
        "history",
        "denials",
        "explain",
        "settle",
        "backup",
        "restore",
        "version",
        "quota set",
        "quota list",
        "quota delete",
        "audit verify",
        "audit replay",
        "projection rebuild",
        "projection digest",
        "projection compare",
        "webhook print",
    }


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_help_has_a_summary_that_fits_a_line_and_examples(
    path: tuple[str, ...], command: typer.core.TyperCommand
) -> None:
    shown = CliRunner().invoke(APP, [*path, "--help"]).output
    summary = (command.help or "").splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) <= 57, "the list of commands would cut it off"
    assert "Examples:" in shown
    assert f"gpuledger {' '.join(path)}" in shown.split("Examples:")[1]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[" ".join(path) for path, _ in ALL])
def test_every_option_and_argument_has_a_help_text(
    path: tuple[str, ...], command: typer.core.TyperCommand
) -> None:
    for parameter in command.params:
        if parameter.name != "help":
            assert getattr(parameter, "help", None), f"{' '.join(path)}: {parameter.name}"


def test_every_setting_of_the_service_is_an_option_of_serve() -> None:
    (serve,) = [command for path, command in ALL if path == ("serve",)]
    names = {parameter.name for parameter in serve.params}
    assert {setting.name for setting in documentation()} - names == set(CLIENT)


NEED_NONE: Final = {
    ("version",),
    ("check",),
    ("uninstall",),
    ("webhook", "print"),
    ("scheduler", "resources"),
    ("demo",),
    ("pseudonym",),
    ("node", "top"),
    ("vgpu", "selftest"),
}
"""Commands that need no ledger."""


def test_every_command_that_needs_a_ledger_finds_it_the_same_way() -> None:
    for path, command in ALL:
        options = {option for parameter in command.params for option in parameter.opts}
        if path not in NEED_NONE:
            assert {"--store-dir", "--nats", "--shard", "--config"} <= options, path

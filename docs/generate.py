"""Generate the reference pages, and what is shipped for schedulers, from the code.

`python docs/generate.py` writes them; with `--check` it changes nothing and exits with 1 when a
page differs from the code. A page cannot be forgotten, because the generator fails for a part of
the code without a description.
"""

import argparse
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import typer
import yaml
from table_texts import EXITS, REASONS
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gpuledger.cli.command_wrapper import help_of
from gpuledger.cli.exit_codes import Exit
from gpuledger.command_line import build
from ledger.core.model.denials import Reason
from ledger.kube.hami.managed_resources import managed_resources
from ledger.kube.vendors.vendors import select_vendors
from ledger.runtime.metrics import METRICS
from ledger.runtime.settings.setting_texts import documentation
from ledger.runtime.settings.settings import Settings

HERE: Final = Path(__file__).parent

SCHEDULER_SETTINGS: Final = "../deploy/scheduler/settings.yaml"
"""Not a page: only its managed resources are generated."""

MANAGED_INDENT: Final = " " * 6
MANAGED: Final = re.compile(r"(?m)^      managedResources:\n(?:      (?:- |  ).*\n)*")
"""The list of managed resources with that indent."""

NOTE: Final = "<!-- Made by docs/generate.py; edit the code that it describes. -->\n"


def command_line() -> str:
    """Return the page about every command, from the Typer app."""
    root = typer.main.get_command(build())
    assert isinstance(root, TyperGroup)
    lines = [
        "# The command line",
        "",
        f"{NOTE}",
        "Every command finds the same ledger by `--store-dir`, `--nats` or the environment. Beside"
        " a running service it uses the log of the service. Otherwise it starts the store's own"
        " server for the duration of the command. Data goes to standard output, everything else"
        " to standard error. Values without an option of the command (NATS credentials, for"
        " instance) come from `--config` or the environment, as in [settings](settings.md).",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code.value} | {EXITS[code]} |" for code in Exit),
        "",
    ]
    for path, command in _commands(root, ("gpuledger",)):
        lines += _command(path, command)
    return "\n".join(lines)


def _commands(
    group: TyperGroup, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, (*path, name))
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield (*path, name), command


def _command(path: tuple[str, ...], command: TyperCommand) -> list[str]:
    """Return the section about one command; options that are settings are on their own page."""
    name = " ".join(path)
    settings = {help_of(setting) for setting in documentation()}
    taken = [one for one in command.params if getattr(one, "help", "") in settings]
    own = [
        one
        for one in command.params
        if isinstance(one, TyperArgument | TyperOption)
        and one not in taken
        and one.name not in _EVERYWHERE
        and not getattr(one, "hidden", False)
    ]
    arguments = [_shown(one) for one in own if one.param_type_name == "argument"]
    examples = (command.epilog or "").removeprefix("\b\nExamples:\n").splitlines()
    rows = [f"| `{_shown(one)}` | {getattr(one, 'help', '')} |" for one in own]
    text = (command.help or "").strip().splitlines()
    lines = [f"## {name}", "", *text, ""]
    lines += ["```console", f"$ {' '.join((name, '[OPTIONS]', *arguments))}", "```", ""]
    if rows:
        lines += ["| option or argument | meaning |", "|---|---|", *rows, ""]
    if taken:
        names = ", ".join(f"`{one.opts[0]}`" for one in taken)
        every = "every setting" if len(taken) == len(settings) else names
        lines += [f"Also takes [settings](settings.md): {every}, and `--config FILE`.", ""]
    return [*lines, "```sh", *(line.removeprefix("  ") for line in examples), "```", ""]


_EVERYWHERE: Final = ("config", "help")


def _shown(parameter: TyperArgument | TyperOption) -> str:
    """Return an argument by its name, an option with its names and what it takes."""
    metavar = str(getattr(parameter, "metavar", None) or "")
    if parameter.param_type_name == "argument":
        return metavar
    names = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
    return f"{names} {metavar}".strip().replace("|", "\\|")


def settings_page() -> str:
    """Return the page about every setting of the service."""
    lines = [
        "# Settings",
        "",
        f"{NOTE}",
        "Sources, the strongest first: the command line, the environment, the TOML file that"
        " `--config` or `GPULEDGER_CONFIG` names, the default. In the file a setting has the name"
        " of this table. In the environment and on the command line several values are separated"
        " by commas. All errors are reported at once. `gpuledger serve --print-config` shows every"
        " value and its source.",
        "",
        "| setting | option | environment | type | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for one in documentation():
        cells = (one.name, one.option, one.environment, one.type, one.default)
        shown = " | ".join(f"`{cell}`".replace("|", "\\|") for cell in cells)
        lines.append(f"| {shown} | {one.description} |")
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    """Return the page about the service's own metrics."""
    lines = [
        "# Metrics",
        "",
        f"{NOTE}",
        "Served at `/metrics` for Prometheus, [to permitted"
        " accounts](../how-to/operating.md#scraping). Labels come from closed sets."
        " The projection adds the usage of every quota and card: `gpuledger_quota_*` by"
        " `cluster`, `namespace`, `quota`, `resource`, and `gpuledger_card_*` by `cluster`, `node`,"
        " `card`. Lines and cards beyond the bound are only counted:"
        " `gpuledger_quota_lines_left_out`, `gpuledger_cards_left_out`.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels) or "none"
        lines.append(f"| `{one.full_name}` | {one.kind.value} | {labels} | {one.help} |")
    return "\n".join([*lines, ""])


def reasons_page() -> str:
    """Return the page about every reason of a denial, in order of precedence."""
    lines = [
        "# Reasons",
        "",
        f"{NOTE}",
        "Reasons of denials. They are stable and appear in brackets at the end of the message."
        " If several apply, the message has the one that is higher in this table.",
        "",
        "If there is no room, the message contains the total demand of the object after the"
        " change, the limit of the quota, and its current usage; then every other limit that is"
        ' short. "It can never fit" also holds for a quota without any other usage. "Try again'
        ' when 8000 MiB are released" is the amount that other objects must give back. An advice'
        ' ("at most 2 replicas") was tested: it fits, and one more does not. "Used by" lists'
        " the largest holders of the first limit. Programs read `details.causes`: one for each"
        " short limit, with its key as `field`.",
        "",
        "| reason | meaning | what to do |",
        "|---|---|---|",
    ]
    for reason in Reason:
        meaning, remedy = REASONS[reason]
        lines.append(f"| `{reason.value}` | {meaning} | {remedy} |")
    return "\n".join([*lines, ""])


def scheduler_settings() -> str:
    """Return the shipped settings of a scheduler, with the managed resources of its vendors."""
    text = (HERE / SCHEDULER_SETTINGS).read_text()
    extender = tomllib.loads(yaml.safe_load(text)["data"]["extender.toml"])
    names = extender.get("vendors", Settings().vendors)
    found = {"managedResources": msgspec.to_builtins(managed_resources(select_vendors(names)))}
    block = textwrap.indent(yaml.safe_dump(found, sort_keys=False), MANAGED_INDENT)
    return MANAGED.sub(lambda _: block, text)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/command-line.md": command_line,
    "reference/settings.md": settings_page,
    "reference/metrics.md": metrics_page,
    "reference/reasons.md": reasons_page,
    SCHEDULER_SETTINGS: scheduler_settings,
}


def stale() -> list[str]:
    """Return the names of the pages that differ from the code."""
    return [
        name
        for name, make in PAGES.items()
        if not (HERE / name).exists() or (HERE / name).read_text() != make()
    ]


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description="Generate the reference pages.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 if stale")
    if parser.parse_args().check:
        found = stale()
        if found:
            sys.stderr.write(f"stale: {', '.join(found)}; run `make docs`\n")
        return bool(found)
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())

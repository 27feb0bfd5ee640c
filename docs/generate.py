"""Generate the reference pages, and what the chart reads of vendors, from the code.

`python docs/generate.py` writes them; with `--check` it changes nothing and exits with 1 when a
page differs from the code. No page can be forgotten, because the generator fails for a part of the
code without a description.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import chart_values
import metric_tables
import typer
import yaml
from table_texts import EXITS, OUTPUT, REASONS
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gpuledger.cli.command_wrapper import help_of
from gpuledger.cli.exit_codes import Exit
from gpuledger.command_line import build
from ledger.core.model.denials import Reason
from ledger.kube.hami.managed_resources import is_placed, managed_resources
from ledger.kube.vendors.vendors import BUILT_IN
from ledger.runtime.settings.client_section import NO_OPTIONS
from ledger.runtime.settings.setting_texts import documentation

HERE: Final = Path(__file__).parent

MANAGED_RESOURCES: Final = "../deploy/chart/gpuledger/files/managed-resources.yaml"
"""Not a page: the chart reads it for the configuration of its scheduler."""

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
        *OUTPUT,
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
    taken = [
        parameter for parameter in command.params if getattr(parameter, "help", "") in settings
    ]
    own = [
        parameter
        for parameter in command.params
        if isinstance(parameter, TyperArgument | TyperOption)
        and parameter not in taken
        and parameter.name not in _EVERYWHERE
        and not getattr(parameter, "hidden", False)
    ]
    arguments = [_shown(parameter) for parameter in own if parameter.param_type_name == "argument"]
    examples = (command.epilog or "").removeprefix("\b\nExamples:\n").splitlines()
    rows = [f"| `{_shown(parameter)}` | {getattr(parameter, 'help', '')} |" for parameter in own]
    text = (command.help or "").strip().splitlines()
    lines = [f"## {name}", "", *text, ""]
    lines += ["```console", f"$ {' '.join((name, '[OPTIONS]', *arguments))}", "```", ""]
    if rows:
        lines += ["| option or argument | meaning |", "|---|---|", *rows, ""]
    if taken:
        names = ", ".join(f"`{parameter.opts[0]}`" for parameter in taken)
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
    for setting in documentation():
        option = "" if setting.name in NO_OPTIONS else setting.option
        cells = (setting.name, option, setting.environment, setting.type, setting.default)
        shown = " | ".join(f"`{cell}`".replace("|", "\\|") if cell else "none" for cell in cells)
        lines.append(f"| {shown} | {setting.description} |")
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    """Return the page about the metrics of the service."""
    return metric_tables.page(NOTE)


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


def chart_values_page() -> str:
    """Return the page about every value of the chart."""
    lines = [
        "# Values of the chart",
        "",
        f"{NOTE}",
        "The values of [`deploy/chart/gpuledger`](../how-to/install.md). helm refuses other names"
        " and wrong types before it renders anything. Maps without an entry of their own, such as"
        " `resources`, `affinity` and `tolerations`, have the form that Kubernetes gives them.",
        "",
        "| value | default | meaning |",
        "|---|---|---|",
    ]
    for path, default, description in chart_values.rows():
        lines.append(f"| `{path}` | `{default}` | {description} |")
    return "\n".join([*lines, ""])


def managed_resources_file() -> str:
    """Return the managed resources of every built-in vendor, for the chart."""
    names = {
        vendor.name: [resource.name for resource in managed_resources([vendor])]
        for vendor in BUILT_IN
        if is_placed(vendor)
    }
    note = "# Made by docs/generate.py: the resources that a scheduler leaves to the extender.\n"
    return note + yaml.safe_dump(names, sort_keys=False)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/command-line.md": command_line,
    "reference/settings.md": settings_page,
    "reference/metrics.md": metrics_page,
    "reference/reasons.md": reasons_page,
    "reference/chart-values.md": chart_values_page,
    MANAGED_RESOURCES: managed_resources_file,
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
        pages = stale()
        if pages:
            sys.stderr.write(f"stale: {', '.join(pages)}; run `make docs`\n")
        return bool(pages)
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())

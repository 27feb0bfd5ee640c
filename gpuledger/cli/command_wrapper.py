"""Command wrapper: makes a function a command of the Typer app.

The settings of a command become its options, generated from their documentation. So every command
locates its ledger the same way: defaults, settings file, environment, command line. Expected errors
become one line on standard error and an exit code.

Modules of commands are imported for every `--help`, so they import what they need in their bodies.
"""

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpuledger.cli.output import Output, headers_shown
from gpuledger.cli.prose import note
from ledger.runtime.settings import setting_sources, setting_texts
from ledger.runtime.settings.setting_sources import LoadedSettings

if TYPE_CHECKING:
    from gpuledger.cli.exit_codes import CommandError

Body = Callable[..., Coroutine[Any, Any, None] | None]
"""The body of a command: a coroutine function, or a function that runs an event loop. The first
argument is the `LoadedSettings`, the others are the command's own options.
"""

LEDGER: Final = ("store_dir", "nats", "shard")
"""The settings that locate the ledger."""

READING: Final = (*LEDGER, "server", "token_file", "ca_file", "kubeconfig", "context")
"""The settings that locate a ledger for reading: a store, a service, or a cluster."""

TERMINATED: Final = 128 + signal.SIGTERM
"""The exit status of a command that SIGTERM ended, as in shells."""

_CONFIG: Final = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with settings.",
            envvar=setting_sources.CONFIG_VARIABLE,
        ),
    ],
)

_NO_HEADERS: Final = inspect.Parameter(
    "no_headers",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--no-headers", help="Leave the header of a table or CSV out.")
    ],
)


class ExplainedCommand(typer.core.TyperCommand):
    """A command whose option errors contain the given value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options as Typer does. Raises BadParameter with the value and the remedy."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _with_value(error)
            raise


def _with_value(error: typer.BadParameter) -> str:
    """Return an option's error with the value, which typer omits."""
    message = error.message.removeprefix("Value error, ")
    problems: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not problems or not message.startswith("Input "):
        return message
    value = str(problems[0]["input"])
    message = f"{value!r}{message.removeprefix('Input')}"
    if getattr(error.param, "metavar", None) != "MIB":
        return message
    from ledger.kube.requests import quantities

    try:
        amount = quantities.parse_units(value, quantities.MEBIBYTE)
    except quantities.QuantityError:
        return message
    return f"{message}; write {amount} for {value}" if value.endswith("i") else message


def group(help_text: str, *examples: str) -> typer.Typer:
    """Return an empty group of commands, with examples."""
    return typer.Typer(
        help=help_text, no_args_is_help=True, rich_markup_mode=None, epilog=epilog(*examples)
    )


def command(
    app: typer.Typer,
    *examples: str,
    takes: Sequence[str] = LEDGER,
    retired: Sequence[str] = (),
    name: str | None = None,
) -> Callable[[Body], Body]:
    """Register a function as a command of a group, with examples and its settings.

    `retired` are accepted settings of earlier versions, without help.
    """

    def register(body: Body) -> Body:
        app.command(name, cls=ExplainedCommand, epilog=epilog(*examples))(
            _entry(body, tuple(takes), tuple(retired))
        )
        return body

    return register


def epilog(*examples: str) -> str:
    """Return the end of a command's help; the mark makes Click keep its lines."""
    return "\n".join(("\b", "Examples:", *(f"  {example}" for example in examples)))


def _entry(body: Body, takes: tuple[str, ...], retired: tuple[str, ...]) -> Callable[..., None]:
    """Return the function that Typer calls: the body's own options, then those of the settings."""

    def entry(**given: Any) -> None:
        values = {name: _text(given.pop(name)) for name in (*takes, *retired)}
        headers_shown.set(not given.pop("no_headers", False))
        _run(body, values, given.pop("config"), given)

    own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters += [_NO_HEADERS for parameter in own if parameter.annotation == Output]
    parameters += [_option(name) for name in takes]
    parameters += [_retired_option(name) for name in retired]
    entry.__signature__ = inspect.Signature([*parameters, _CONFIG])  # type: ignore[attr-defined]
    entry.__name__, entry.__doc__ = body.__name__, body.__doc__
    return entry


def _option(name: str) -> inspect.Parameter:
    """Return a setting as an option; its text is checked together with all other sources."""
    documented = next(setting for setting in setting_texts.documentation() if setting.name == name)
    kind: Any = str
    metavar: str | None = name.rpartition("_")[2].upper()
    if documented.type == "true or false":
        kind, metavar = bool, None
    elif setting_texts.is_list(name):
        kind = list[str]
    option = typer.Option(
        documented.option.replace(" ", ""),
        metavar=metavar,
        help=help_of(documented),
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _retired_option(name: str) -> inspect.Parameter:
    """Return a hidden option for a setting of an earlier version."""
    option = typer.Option(
        setting_texts.option_of(name), hidden=True, help="A setting of an earlier version: ignored."
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )


def help_of(documented: setting_texts.Documentation) -> str:
    """Return the help of a setting's option, with its variable in the environment and default."""
    return f"{documented.description} [{documented.environment}; {documented.default}]"


def _text(given: object) -> object:
    """Return the value of an option as settings read it from text; lists join by commas."""
    return ",".join(given) if isinstance(given, list) else given


async def _until_terminated(work: Coroutine[Any, Any, None]) -> None:
    """Do the work. SIGTERM cancels it, so servers and files are removed; a second one kills."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)

    def end() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    await task


def _ending(error: Exception) -> "CommandError | None":
    """Return the error that ends a command, None for a defect.

    The table of expected errors imports every part that raises, 0.25 s of processor time.
    """
    from gpuledger.cli.exit_codes import CommandError

    if isinstance(error, CommandError):
        return error
    from gpuledger.cli.expected_errors import command_error_for

    return command_error_for(error)


def _run(body: Body, values: dict[str, object], config: str | None, given: dict[str, Any]) -> None:
    try:
        loaded: LoadedSettings = setting_sources.load(values, os.environ, config)
        work = body(loaded, **given)
        if inspect.iscoroutine(work):
            asyncio.run(_until_terminated(work))
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
    except Exception as error:
        stop = _ending(error)
        if stop is None:
            raise
        note(f"gpuledger: {stop}")
        sys.exit(stop.status)

"""Time options of commands: `--at`, `--since` and `--until`, each a position of the log or a time.

`--from` and `--to` of an earlier version are read as `--since` and `--until`.
"""

from typing import Annotated, Final

import typer

FORMAT: Final = "POSITION|TIME"
EXAMPLE: Final = "2026-01-31T12:00:00Z"


def _not_empty(context: typer.Context, given: typer.CallbackParam, value: str) -> str:
    """Return the value; an empty one on the command line is an error. Raises BadParameter."""
    source = context.get_parameter_source(given.name or "")
    if not value and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter(
            f"'' is not a valid {FORMAT}: give one such as {EXAMPLE}, or leave it out"
        )
    return value


At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar=FORMAT,
        help=f"As of a position of the log, or of a time such as {EXAMPLE}.",
        callback=_not_empty,
    ),
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar=FORMAT,
        help=f"From a position on, or from a time such as {EXAMPLE}.",
        callback=_not_empty,
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until",
        metavar=FORMAT,
        help=f"Up to a position, or to a time such as {EXAMPLE}.",
        callback=_not_empty,
    ),
]

_BEFORE: Final = {"from": "since", "to": "until"}


def today(option: str) -> str:
    """Return the present name of an option of an earlier version, or the given name."""
    return _BEFORE.get(option, option)

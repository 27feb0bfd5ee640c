"""The options of time, which all commands share: positions of the log, or times."""

from typing import Annotated, Final

import typer

FORMAT: Final = "POSITION|TIME"
EXAMPLE: Final = "2026-01-31T12:00:00Z"

At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar=FORMAT,
        help=f"As of a position of the log, or of a time such as {EXAMPLE}.",
    ),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar=FORMAT, help=f"From a position on, or from a time such as {EXAMPLE}."
    ),
]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar=FORMAT, help=f"Up to a position, or to a time such as {EXAMPLE}."
    ),
]

_BEFORE: Final = {"from": "since", "to": "until"}


def today(option: str) -> str:
    """Return how an option of an earlier version is called now, others as they are."""
    return _BEFORE.get(option, option)

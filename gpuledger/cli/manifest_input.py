"""Manifest input: reads a given file, or standard input, as JSON."""

import sys
from pathlib import Path
from typing import Final

from gpuledger.cli import manifest_document
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.manifest_document import ManifestProblem

STANDARD_INPUT: Final = "-"


def name_of(file: str) -> str:
    """Return the name of a file for a message."""
    return "standard input" if file == STANDARD_INPUT else file or "the file ''"


def refused(file: str, field: str, message: str) -> CommandError:
    """Return the error for the content of a file; `field` is empty if the refusal names none."""
    named = f"{field}: " if field else ""
    return CommandError(Exit.USAGE, f"{name_of(file)}: {named}{message}")


def read(file: str, bytes_max: int) -> bytes:
    """Return a file's object as JSON; YAML is converted. Raises CommandError naming the file."""
    return as_json(_content(file, bytes_max), name_of(file))


def as_json(content: bytes, name: str) -> bytes:
    """Return the one object of a document as JSON; YAML is converted. Raises CommandError with the
    document's name.
    """
    try:
        return manifest_document.as_json(content, name)
    except ManifestProblem as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def _content(file: str, bytes_max: int) -> bytes:
    try:
        if file == STANDARD_INPUT:
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CommandError(
            Exit.USAGE, f"{name_of(file)} cannot be read: {why}; check the path"
        ) from error
    if len(content) > bytes_max:
        raise CommandError(
            Exit.USAGE,
            f"{name_of(file)} has more than {bytes_max} bytes (setting review_bytes_max)",
        )
    return content

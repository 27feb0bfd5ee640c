"""Metrics token: the token of `metrics_token_file` permits reading metrics without a cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.runtime.settings.settings import Settings

CHARACTERS_MIN: Final = 32

_BYTES_READ: Final = 4096


def token_reader(settings: Settings) -> Callable[[], str]:
    """Return a function that reads the token: the file's text, "" without a file.

    The file is read at each use, so it can be replaced at any time. An unusable file is the same as
    none. Raises CommandError for an unusable file at the start.
    """
    if not settings.metrics_token_file:
        return str
    path = Path(settings.metrics_token_file)
    if not _token_in(path):
        raise CommandError(
            Exit.USAGE,
            f"metrics_token_file = {path}: holds no token of at least {CHARACTERS_MIN} ASCII"
            " characters that this user can read; write one, as `openssl rand -hex 32` does",
        )
    return lambda: _token_in(path)


def _token_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(_BYTES_READ).strip().decode("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
    return token if len(token) >= CHARACTERS_MIN else ""

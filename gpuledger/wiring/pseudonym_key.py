"""The key of pseudonyms: read from a file and checked before anything is recorded with it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.runtime.settings.settings import Settings
from webhook.api.user_pseudonyms import KEY_BYTES_MIN, pseudonym

_BYTES_READ: Final = 4096
_REMEDY: Final = f"write at least {KEY_BYTES_MIN} random ones, as `openssl rand -hex 32` does"


def recorded_names(settings: Settings) -> Callable[[str], str]:
    """Return the function from a user's name to the recorded one: itself, or a pseudonym. Raises
    CommandError."""
    if not settings.pseudonym_key_file:
        return str
    return partial(pseudonym, key_of(settings.pseudonym_key_file))


def key_of(path: str) -> bytes:
    """Read the key. Raises CommandError naming a file that cannot be read or holds too little."""
    try:
        with Path(path).open("rb") as file:
            key = file.read(_BYTES_READ).strip()
    except OSError as error:
        raise CommandError(Exit.USAGE, f"pseudonym_key_file = {path}: {error.strerror}") from error
    if len(key) < KEY_BYTES_MIN:
        raise CommandError(
            Exit.USAGE,
            f"pseudonym_key_file = {path}: {len(key)} bytes are too few for a key; {_REMEDY}",
        )
    return key

"""User pseudonyms: the names of users as the log records them, if it must not name persons.

A pseudonym is an HMAC of the name, with a key from a file. The same name and key give the same
pseudonym, and without the key no name follows from it. Names that begin with `system:` belong to
service accounts and components, not to persons, and are recorded as they are.
"""

import hashlib
import hmac
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.runtime.settings.settings import Settings

KEY_BYTES_MIN: Final = 32
PREFIX: Final = "pseudonym-"

_CHARACTERS: Final = 32
_NOT_PERSONS: Final = "system:"
_BYTES_READ: Final = 4096
_REMEDY: Final = f"write at least {KEY_BYTES_MIN} random ones, as `openssl rand -hex 32` does"


def recorded_names(settings: Settings) -> Callable[[str], str]:
    """Return the function from a user's name to the recorded one: the name itself or a pseudonym.

    Raises CommandError if the file of the key is unusable.
    """
    if not settings.pseudonym_key_file:
        return str
    return partial(pseudonym, key_of(settings.pseudonym_key_file))


def key_of(path: str) -> bytes:
    """Return the key in a file. Raises CommandError if it is unreadable or too short."""
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


def pseudonym(key: bytes, name: str) -> str:
    """Return the pseudonym of a user's name; an empty name, or the name of no person, as it is."""
    if not name or name.startswith(_NOT_PERSONS):
        return name
    digest = hmac.new(key, name.encode(), hashlib.sha256).hexdigest()
    return f"{PREFIX}{digest[:_CHARACTERS]}"
